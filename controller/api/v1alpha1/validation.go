package v1alpha1

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Messages of the rules that are CEL in the CRDs. Markers cannot refer to constants, so a test compares the two.
const (
	MessageOneCloud              = "exactly one cloud must be given: aws"
	MessageOneImage              = "exactly one of id and ssmParameter must be given"
	MessageTwoStrategies         = "two sharing strategies: layouts cut GPUs with MIG, but strategy is not MIG; set strategy to MIG or leave layouts out"
	MessageLayoutsMissing        = "strategy MIG needs at least one layout in layouts, one for each GPU model"
	MessageReplicasElsewhere     = "two sharing strategies: replicas slice the time of GPUs, but strategy is not TimeSlicing; set strategy to TimeSlicing or leave replicas out"
	MessageReplicasMissing       = "strategy TimeSlicing needs replicas, 2 or more: how many pods may share one GPU"
	MessageTimeSlicingOnly       = "renameByDefault and failRequestsGreaterThanOne belong to strategy TimeSlicing"
	MessageMIGOnly               = "migStrategy belongs to strategy MIG"
	MessageVerificationTimeout   = "timeout must be from 1m to 2h"
	MessageGPUsMissing           = "where devices has several entries, each must name its gpus"
	MessageGPUNamedTwice         = "a GPU is named in two entries of devices"
	MessageReservedLabels        = "labels under gpufleet.dev, karpenter.sh and nvidia.com are set by gpufleet"
	MessageReservedTaints        = "taints nvidia.com/gpu and those under gpufleet.dev and karpenter.sh are set by gpufleet"
	MessageConsolidateAfterRange = "consolidateAfter must be from 0s to 168h"
	MessageLimitsMissing         = "limits must have at least one of gpus, nodes and hourlyCost"
	MessagePoolNameLength        = "the name of a GPUNodePool has at most 54 characters: its NodePools and labels carry it"
)

// Patterns of the CRDs.
const (
	PatternSubnet        = `^subnet-[0-9a-z]+$`
	PatternSecurityGroup = `^sg-[0-9a-z]+$`
	PatternImage         = `^ami-[0-9a-z]+$`
	PatternSSMParameter  = `^/.+$`
	PatternClusterName   = `^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$`
	PatternEndpoint      = `^https://.+$`
	PatternDriverVersion = `^[0-9]+(\.[0-9]+){0,2}$`
	PatternInstanceType  = `^[a-z0-9-]+\.[a-z0-9-]+$`
	PatternHourlyCost    = `^[0-9]{1,7}(\.[0-9]{1,6})?$`
	PatternMIGProfile    = `^[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z.,]+)?$`
)

// Bounds and defaults of the CRDs. Lists without a minimum here may be left out.
const (
	MaxSubnets               = 32
	MaxSecurityGroups        = 16
	MaxInstanceProfileLength = 128
	MaxSSMParameterLength    = 512
	MinRootVolumeGiB         = 20
	MaxRootVolumeGiB         = 16384
	DefaultRootVolumeGiB     = 100
	MaxLayouts               = 16
	MinReplicas              = 2
	MaxReplicas              = 128
	MaxNameLength            = 63 // of GPU models, layouts and zones: they become label values
	MinVerificationTimeout   = time.Minute
	MaxVerificationTimeout   = 2 * time.Hour
	MaxDevices               = 16
	MaxGPUs                  = 16
	MaxGPUIndex              = 15
	MaxSlices                = 16
	MaxProfileLength         = 32
	MaxSliceCount            = 16
	MaxMachines              = 100
	MaxInstanceTypes         = 60
	MaxZones                 = 32
	MaxLabels                = 64
	MaxTaints                = 16
	MaxTaintKeyLength        = 317
	MaxTaintValueLength      = 63
	MaxClassNameLength       = 253
	MaxPoolNameLength        = 54
	MaxConsolidateAfter      = 168 * time.Hour
	MaxLimit                 = 100000 // of physical GPUs, and of nodes
	MinSurge                 = 1
	MaxSurge                 = 100
)

// AMIFamilies and TaintEffects list what the CRDs allow.
var (
	AMIFamilies  = []AMIFamily{AMIFamilyAL2023}
	TaintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
)

// ReservedPrefixes are the prefixes of labels that users may not set; ReservedTaintPrefixes those of taints, beside
// TaintGPU.
var (
	ReservedPrefixes      = []string{Group + "/", "karpenter.sh/", ResourcePrefix}
	ReservedTaintPrefixes = []string{Group + "/", "karpenter.sh/"}
)

// Violation is one rule that an object breaks, at a path of the object such as spec.sharing.layouts.
type Violation struct{ Path, Message string }

// ValidateGPUNodeClass applies the rules of the GPUNodeClass CRD. What is empty counts as left out.
func ValidateGPUNodeClass(spec *GPUNodeClassSpec) []Violation {
	var v violations
	if spec.Cloud.AWS == nil {
		v.add("spec.cloud", MessageOneCloud)
	} else {
		v.aws("spec.cloud.aws", spec.Cloud.AWS)
	}
	v.sharing("spec.sharing", spec.Sharing)
	if spec.Driver != nil {
		v.matches("spec.driver.minVersion", spec.Driver.MinVersion, driverVersionPattern())
	}
	if timeout := spec.Verification.Timeout; timeout != nil && (timeout.Duration < MinVerificationTimeout || timeout.Duration > MaxVerificationTimeout) {
		v.add("spec.verification.timeout", MessageVerificationTimeout)
	}
	return v
}

// ValidateMIGLayout applies the rules of the MIGLayout CRD. Whether the slices can be placed is another matter: that
// takes the table of GPU models.
func ValidateMIGLayout(spec *MIGLayoutSpec) []Violation {
	var v violations
	v.length("spec.gpuModel", spec.GPUModel, 1, MaxNameLength)
	v.count("spec.devices", len(spec.Devices), 1, MaxDevices)
	seen := map[int32]int{}
	for i, d := range spec.Devices {
		path := fmt.Sprintf("spec.devices[%d]", i)
		if len(spec.Devices) > 1 && len(d.GPUs) == 0 {
			v.add(path+".gpus", MessageGPUsMissing)
		}
		v.gpus(path+".gpus", i, d.GPUs, seen)
		v.slices(path+".slices", d.Slices)
	}
	return v
}

// ValidateGPUNodePool applies the rules of the GPUNodePool CRD to its spec.
func ValidateGPUNodePool(spec *GPUNodePoolSpec) []Violation {
	var v violations
	oneOf(&v, "spec.workload", spec.Workload, Workloads)
	v.length("spec.nodeClassRef.name", spec.NodeClassRef.Name, 1, MaxClassNameLength)
	v.count("spec.machines", len(spec.Machines), 1, MaxMachines)
	for i, m := range spec.Machines {
		path := fmt.Sprintf("spec.machines[%d].instanceTypes", i)
		v.count(path, len(m.InstanceTypes), 1, MaxInstanceTypes)
		set(&v, path, m.InstanceTypes)
		v.allMatch(path, m.InstanceTypes, instanceTypePattern())
	}
	v.count("spec.zones", len(spec.Zones), 0, MaxZones)
	set(&v, "spec.zones", spec.Zones)
	v.allLength("spec.zones", spec.Zones, 1, MaxNameLength)
	v.count("spec.capacityTypes", len(spec.CapacityTypes), 0, len(CapacityTypes))
	set(&v, "spec.capacityTypes", spec.CapacityTypes)
	for i, c := range spec.CapacityTypes {
		oneOf(&v, fmt.Sprintf("spec.capacityTypes[%d]", i), c, CapacityTypes)
	}
	v.entries("spec.machines", spec.Machines)
	v.labels("spec.labels", spec.Labels)
	v.nodeLabels("spec.labels", spec.Labels)
	v.taints("spec.taints", spec.Taints)
	v.nodeTaints("spec.taints", spec.Taints)
	if d := spec.Disruption; d != nil && d.ConsolidateAfter != nil {
		if after := d.ConsolidateAfter.Duration; after < 0 || after > MaxConsolidateAfter {
			v.add("spec.disruption.consolidateAfter", MessageConsolidateAfterRange)
		}
		v.wholeSeconds("spec.disruption.consolidateAfter", d.ConsolidateAfter.Duration)
	}
	if spec.Limits != nil {
		v.limits("spec.limits", *spec.Limits)
	}
	return v
}

// ValidateGPUNodePoolName applies the rule of the GPUNodePool CRD to its name.
func ValidateGPUNodePoolName(name string) []Violation {
	var v violations
	if len(name) > MaxPoolNameLength {
		v.add("metadata.name", MessagePoolNameLength)
	}
	return v
}

// violations collects what is wrong, in the order of the object's fields.
type violations []Violation

func (v *violations) add(path, message string) {
	*v = append(*v, Violation{Path: path, Message: message})
}

func (v *violations) aws(path string, aws *AWSCloud) {
	v.count(path+".subnets", len(aws.Subnets), 1, MaxSubnets)
	set(v, path+".subnets", aws.Subnets)
	v.allMatch(path+".subnets", aws.Subnets, subnetPattern())
	v.count(path+".securityGroups", len(aws.SecurityGroups), 1, MaxSecurityGroups)
	set(v, path+".securityGroups", aws.SecurityGroups)
	v.allMatch(path+".securityGroups", aws.SecurityGroups, securityGroupPattern())
	v.length(path+".instanceProfile", aws.InstanceProfile, 1, MaxInstanceProfileLength)
	v.image(path+".ami", aws.AMI)
	if size := aws.RootVolume.SizeGiB; size != 0 {
		v.between(path+".rootVolume.sizeGiB", int64(size), MinRootVolumeGiB, MaxRootVolumeGiB)
	}
	v.matches(path+".cluster.name", aws.Cluster.Name, clusterNamePattern())
	v.matches(path+".cluster.endpoint", aws.Cluster.Endpoint, endpointPattern())
	v.length(path+".cluster.certificateAuthority", aws.Cluster.CertificateAuthority, 1, 0)
	v.length(path+".cluster.serviceCIDR", aws.Cluster.ServiceCIDR, 1, 0)
	v.cluster(path+".cluster", aws.Cluster)
}

func (v *violations) image(path string, ami AMISpec) {
	if ami.Family != "" {
		oneOf(v, path+".family", ami.Family, AMIFamilies)
	}
	if (ami.ID == "") == (ami.SSMParameter == "") {
		v.add(path, MessageOneImage)
	}
	if ami.ID != "" {
		v.matches(path+".id", ami.ID, imagePattern())
	}
	if ami.SSMParameter != "" {
		v.matches(path+".ssmParameter", ami.SSMParameter, ssmParameterPattern())
		v.length(path+".ssmParameter", ami.SSMParameter, 0, MaxSSMParameterLength)
	}
}

// gpus checks one entry's list of GPUs. seen holds the entry that named each GPU first.
func (v *violations) gpus(path string, entry int, gpus []int32, seen map[int32]int) {
	v.count(path, len(gpus), 0, MaxGPUs)
	set(v, path, gpus)
	for i, g := range gpus {
		v.between(fmt.Sprintf("%s[%d]", path, i), int64(g), 0, MaxGPUIndex)
		first, named := seen[g]
		if named && first != entry {
			v.add(fmt.Sprintf("%s[%d]", path, i), MessageGPUNamedTwice)
		}
		if !named {
			seen[g] = entry
		}
	}
}

func (v *violations) slices(path string, cut []MIGSlice) {
	v.count(path, len(cut), 1, MaxSlices)
	profiles := make([]string, len(cut))
	for i, s := range cut {
		profiles[i] = s.Profile
		at := fmt.Sprintf("%s[%d]", path, i)
		v.matches(at+".profile", s.Profile, migProfilePattern())
		v.length(at+".profile", s.Profile, 0, MaxProfileLength)
		v.between(at+".count", int64(s.Count), 1, MaxSliceCount)
	}
	set(v, path, profiles)
}

func (v *violations) labels(path string, labels map[string]string) {
	v.count(path, len(labels), 0, MaxLabels)
	for key := range labels {
		if hasAnyPrefix(key, ReservedPrefixes) {
			v.add(path, MessageReservedLabels)
			return
		}
	}
}

func (v *violations) taints(path string, taints []TaintSpec) {
	v.count(path, len(taints), 0, MaxTaints)
	for i, t := range taints {
		at := fmt.Sprintf("%s[%d]", path, i)
		v.length(at+".key", t.Key, 1, MaxTaintKeyLength)
		v.length(at+".value", t.Value, 0, MaxTaintValueLength)
		oneOf(v, at+".effect", t.Effect, TaintEffects)
		if t.Key == TaintGPU || hasAnyPrefix(t.Key, ReservedTaintPrefixes) {
			v.add(at+".key", MessageReservedTaints)
		}
	}
}

// Lengths are in characters, as the API server counts them. A maximum of 0 is none.
func (v *violations) length(path, value string, least, most int) {
	switch n := len([]rune(value)); {
	case n < least:
		v.add(path, "must be given")
	case most > 0 && n > most:
		v.add(path, fmt.Sprintf("has %d characters; at most %d are allowed", n, most))
	}
}

func (v *violations) allLength(path string, values []string, least, most int) {
	for i, value := range values {
		v.length(fmt.Sprintf("%s[%d]", path, i), value, least, most)
	}
}

func (v *violations) count(path string, n, least, most int) {
	if n < least || n > most {
		v.add(path, fmt.Sprintf("has %d entries; %d to %d are allowed", n, least, most))
	}
}

func (v *violations) between(path string, n, least, most int64) {
	if n < least || n > most {
		v.add(path, fmt.Sprintf("is %d; %d to %d are allowed", n, least, most))
	}
}

func (v *violations) matches(path, value string, pattern *regexp.Regexp) {
	if !pattern.MatchString(value) {
		v.add(path, fmt.Sprintf("%q does not match %s", value, pattern))
	}
}

func (v *violations) allMatch(path string, values []string, pattern *regexp.Regexp) {
	for i, value := range values {
		v.matches(fmt.Sprintf("%s[%d]", path, i), value, pattern)
	}
}

func oneOf[T ~string](v *violations, path string, value T, allowed []T) {
	if !slices.Contains(allowed, value) {
		v.add(path, fmt.Sprintf("%q is not one of %s", value, join(allowed)))
	}
}

func set[T comparable](v *violations, path string, values []T) {
	for i, value := range values {
		if slices.Contains(values[:i], value) {
			v.add(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%v is given twice", value))
		}
	}
}

func join[T ~string](values []T) string {
	words := make([]string, len(values))
	for i, value := range values {
		words[i] = string(value)
	}
	return strings.Join(words, ", ")
}

func hasAnyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// Patterns are compiled when they are first used.
var (
	subnetPattern        = compiled(PatternSubnet)
	securityGroupPattern = compiled(PatternSecurityGroup)
	imagePattern         = compiled(PatternImage)
	ssmParameterPattern  = compiled(PatternSSMParameter)
	clusterNamePattern   = compiled(PatternClusterName)
	endpointPattern      = compiled(PatternEndpoint)
	driverVersionPattern = compiled(PatternDriverVersion)
	instanceTypePattern  = compiled(PatternInstanceType)
	hourlyCostPattern    = compiled(PatternHourlyCost)
	migProfilePattern    = compiled(PatternMIGProfile)
)

func compiled(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
