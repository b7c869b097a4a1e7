package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

type violation = v1alpha1.Violation

func validClass() *v1alpha1.GPUNodeClassSpec {
	return &v1alpha1.GPUNodeClassSpec{
		Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{
			Subnets: []string{"subnet-0a1b"}, SecurityGroups: []string{"sg-0a1b"}, InstanceProfile: "gpufleet-node",
			AMI: v1alpha1.AMISpec{ID: "ami-0a1b"},
			Cluster: v1alpha1.ClusterSpec{
				Name: "prod", Endpoint: "https://k8s", CertificateAuthority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=", ServiceCIDR: "10.100.0.0/16",
			},
		}},
		Sharing: v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: []string{"h100"}},
		Driver:  &v1alpha1.DriverSpec{MinVersion: "550.90.07"},
	}
}

func timeSlicing(replicas int32) v1alpha1.SharingSpec {
	return v1alpha1.SharingSpec{Strategy: v1alpha1.SharingTimeSlicing, Replicas: &replicas}
}

func TestValidateGPUNodeClass(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.GPUNodeClassSpec)
		want   []violation
	}{
		{"valid", func(*v1alpha1.GPUNodeClassSpec) {}, nil},
		{"defaults left out", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing = v1alpha1.SharingSpec{}; s.Driver = nil }, nil},
		{"no cloud", func(s *v1alpha1.GPUNodeClassSpec) { s.Cloud.AWS = nil },
			[]violation{{"spec.cloud", "exactly one cloud must be given: aws"}}},
		{"layouts without MIG", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing.Strategy = v1alpha1.SharingExclusive },
			[]violation{{"spec.sharing", "two sharing strategies: layouts cut GPUs with MIG, but strategy is not MIG; set strategy to MIG or leave layouts out"}}},
		{"layouts under the default strategy", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing.Strategy = "" },
			[]violation{{"spec.sharing", "two sharing strategies: layouts cut GPUs with MIG, but strategy is not MIG; set strategy to MIG or leave layouts out"}}},
		{"MIG without layouts", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing.Layouts = nil },
			[]violation{{"spec.sharing", "strategy MIG needs at least one layout in layouts, one for each GPU model"}}},
		{"an unknown strategy", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing = v1alpha1.SharingSpec{Strategy: "MPS"} },
			[]violation{{"spec.sharing.strategy", `"MPS" is not one of Exclusive, MIG, TimeSlicing`}}},
		{"MIG under one name", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing.MIGStrategy = v1alpha1.MIGSingle }, nil},
		{"an unknown MIG strategy", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing.MIGStrategy = "None" },
			[]violation{{"spec.sharing.migStrategy", `"None" is not one of Mixed, Single`}}},
		{"a MIG strategy without MIG", func(s *v1alpha1.GPUNodeClassSpec) {
			s.Sharing = v1alpha1.SharingSpec{MIGStrategy: v1alpha1.MIGMixed}
		},
			[]violation{{"spec.sharing", "migStrategy belongs to strategy MIG"}}},
		{"the fewest replicas", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing = timeSlicing(2) }, nil},
		{"the most replicas, renamed and one each", func(s *v1alpha1.GPUNodeClassSpec) {
			s.Sharing = timeSlicing(128)
			s.Sharing.RenameByDefault, s.Sharing.FailRequestsGreaterThanOne = true, true
		}, nil},
		{"one replica", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing = timeSlicing(1) },
			[]violation{{"spec.sharing.replicas", "is 1; 2 to 128 are allowed"}}},
		{"too many replicas", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing = timeSlicing(129) },
			[]violation{{"spec.sharing.replicas", "is 129; 2 to 128 are allowed"}}},
		{"time slicing without replicas", func(s *v1alpha1.GPUNodeClassSpec) {
			s.Sharing = v1alpha1.SharingSpec{Strategy: v1alpha1.SharingTimeSlicing}
		},
			[]violation{{"spec.sharing", "strategy TimeSlicing needs replicas, 2 or more: how many pods may share one GPU"}}},
		{"replicas without time slicing", func(s *v1alpha1.GPUNodeClassSpec) {
			s.Sharing = v1alpha1.SharingSpec{Replicas: new(int32(4))}
		},
			[]violation{{"spec.sharing", "two sharing strategies: replicas slice the time of GPUs, but strategy is not TimeSlicing; set strategy to TimeSlicing or leave replicas out"}}},
		{"MIG with replicas", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing.Replicas = new(int32(4)) },
			[]violation{{"spec.sharing", "two sharing strategies: replicas slice the time of GPUs, but strategy is not TimeSlicing; set strategy to TimeSlicing or leave replicas out"}}},
		{"time slicing with layouts", func(s *v1alpha1.GPUNodeClassSpec) {
			s.Sharing = timeSlicing(4)
			s.Sharing.Layouts = []string{"h100"}
		},
			[]violation{{"spec.sharing", "two sharing strategies: layouts cut GPUs with MIG, but strategy is not MIG; set strategy to MIG or leave layouts out"}}},
		{"renaming without time slicing", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing.RenameByDefault = true },
			[]violation{{"spec.sharing", "renameByDefault and failRequestsGreaterThanOne belong to strategy TimeSlicing"}}},
		{"one share each without time slicing", func(s *v1alpha1.GPUNodeClassSpec) {
			s.Sharing = v1alpha1.SharingSpec{FailRequestsGreaterThanOne: true}
		},
			[]violation{{"spec.sharing", "renameByDefault and failRequestsGreaterThanOne belong to strategy TimeSlicing"}}},
		{"a layout twice", func(s *v1alpha1.GPUNodeClassSpec) { s.Sharing.Layouts = []string{"h100", "h100"} },
			[]violation{{"spec.sharing.layouts[1]", "h100 is given twice"}}},
		{"no image", func(s *v1alpha1.GPUNodeClassSpec) { s.Cloud.AWS.AMI.ID = "" },
			[]violation{{"spec.cloud.aws.ami", "exactly one of id and ssmParameter must be given"}}},
		{"two images", func(s *v1alpha1.GPUNodeClassSpec) { s.Cloud.AWS.AMI.SSMParameter = "/aws/x" },
			[]violation{{"spec.cloud.aws.ami", "exactly one of id and ssmParameter must be given"}}},
		{"not an image", func(s *v1alpha1.GPUNodeClassSpec) { s.Cloud.AWS.AMI.ID = "latest" },
			[]violation{{"spec.cloud.aws.ami.id", `"latest" does not match ^ami-[0-9a-z]+$`}}},
		{"not a parameter", func(s *v1alpha1.GPUNodeClassSpec) { s.Cloud.AWS.AMI = v1alpha1.AMISpec{SSMParameter: "aws"} },
			[]violation{{"spec.cloud.aws.ami.ssmParameter", `"aws" does not match ^/.+$`}}},
		{"another image family", func(s *v1alpha1.GPUNodeClassSpec) { s.Cloud.AWS.AMI.Family = "Bottlerocket" },
			[]violation{{"spec.cloud.aws.ami.family", `"Bottlerocket" is not one of AL2023`}}},
		{"no subnets", func(s *v1alpha1.GPUNodeClassSpec) { s.Cloud.AWS.Subnets = nil },
			[]violation{{"spec.cloud.aws.subnets", "has 0 entries; 1 to 32 are allowed"}}},
		{"not a subnet", func(s *v1alpha1.GPUNodeClassSpec) { s.Cloud.AWS.Subnets = []string{"subnet-1", "vpc-1"} },
			[]violation{{"spec.cloud.aws.subnets[1]", `"vpc-1" does not match ^subnet-[0-9a-z]+$`}}},
		{"a small disk", func(s *v1alpha1.GPUNodeClassSpec) { s.Cloud.AWS.RootVolume.SizeGiB = 19 },
			[]violation{{"spec.cloud.aws.rootVolume.sizeGiB", "is 19; 20 to 16384 are allowed"}}},
		{"an endpoint in the clear", func(s *v1alpha1.GPUNodeClassSpec) { s.Cloud.AWS.Cluster.Endpoint = "http://k8s" },
			[]violation{{"spec.cloud.aws.cluster.endpoint", `"http://k8s" does not match ^https://.+$`}}},
		{"no certificate", func(s *v1alpha1.GPUNodeClassSpec) { s.Cloud.AWS.Cluster.CertificateAuthority = "" },
			[]violation{{"spec.cloud.aws.cluster.certificateAuthority", "must be given"}}},
		{"a driver that is no version", func(s *v1alpha1.GPUNodeClassSpec) { s.Driver.MinVersion = "R550" },
			[]violation{{"spec.driver.minVersion", `"R550" does not match ^[0-9]+(\.[0-9]+){0,2}$`}}},
		{"a hasty deadline", func(s *v1alpha1.GPUNodeClassSpec) {
			s.Verification.Timeout = &metav1.Duration{Duration: 59 * time.Second}
		},
			[]violation{{"spec.verification.timeout", "timeout must be from 1m to 2h"}}},
		{"the longest deadline", func(s *v1alpha1.GPUNodeClassSpec) { s.Verification.Timeout = &metav1.Duration{Duration: 2 * time.Hour} }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := validClass()
			tc.change(spec)
			compare(t, tc.want, v1alpha1.ValidateGPUNodeClass(spec))
		})
	}
}

func compare(t *testing.T, want, got []violation) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func seven(gpus ...int32) v1alpha1.MIGDevices {
	return v1alpha1.MIGDevices{GPUs: gpus, Slices: []v1alpha1.MIGSlice{{Profile: "1g.10gb", Count: 7}}}
}

func TestValidateMIGLayout(t *testing.T) {
	slice := func(profile string, count int32) []v1alpha1.MIGDevices {
		return []v1alpha1.MIGDevices{{Slices: []v1alpha1.MIGSlice{{Profile: profile, Count: count}}}}
	}
	for _, tc := range []struct {
		name    string
		devices []v1alpha1.MIGDevices
		want    []violation
	}{
		{"every GPU alike", []v1alpha1.MIGDevices{seven()}, nil},
		{"each entry its GPUs", []v1alpha1.MIGDevices{seven(0, 1), seven(2)}, nil},
		{"media extensions", slice("1g.24gb+me.all", 1), nil},
		{"no devices", nil, []violation{{"spec.devices", "has 0 entries; 1 to 16 are allowed"}}},
		{"an entry without GPUs among several", []v1alpha1.MIGDevices{seven(0), seven()},
			[]violation{{"spec.devices[1].gpus", "where devices has several entries, each must name its gpus"}}},
		{"a GPU in two entries", []v1alpha1.MIGDevices{seven(0, 1), seven(1)},
			[]violation{{"spec.devices[1].gpus[0]", "a GPU is named in two entries of devices"}}},
		{"a GPU twice in one entry", []v1alpha1.MIGDevices{seven(1, 1)},
			[]violation{{"spec.devices[0].gpus[1]", "1 is given twice"}}},
		{"a GPU that no machine has", []v1alpha1.MIGDevices{seven(16)},
			[]violation{{"spec.devices[0].gpus[0]", "is 16; 0 to 15 are allowed"}}},
		{"no slices", []v1alpha1.MIGDevices{{}}, []violation{{"spec.devices[0].slices", "has 0 entries; 1 to 16 are allowed"}}},
		{"not a profile", slice("1g", 1),
			[]violation{{"spec.devices[0].slices[0].profile", `"1g" does not match ^[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z.,]+)?$`}}},
		{"a count of nothing", slice("1g.10gb", 0), []violation{{"spec.devices[0].slices[0].count", "is 0; 1 to 16 are allowed"}}},
		{"a profile twice", []v1alpha1.MIGDevices{{Slices: []v1alpha1.MIGSlice{{Profile: "1g.10gb", Count: 1}, {Profile: "1g.10gb", Count: 2}}}},
			[]violation{{"spec.devices[0].slices[1]", "1g.10gb is given twice"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			compare(t, tc.want, v1alpha1.ValidateMIGLayout(&v1alpha1.MIGLayoutSpec{GPUModel: "H100-80GB-SXM", Devices: tc.devices}))
		})
	}
	compare(t, []violation{{"spec.gpuModel", "must be given"}},
		v1alpha1.ValidateMIGLayout(&v1alpha1.MIGLayoutSpec{Devices: []v1alpha1.MIGDevices{seven()}}))
}

func validPool() *v1alpha1.GPUNodePoolSpec {
	return &v1alpha1.GPUNodePoolSpec{
		Workload: v1alpha1.WorkloadBatch, NodeClassRef: v1alpha1.NodeClassReference{Name: "h100"},
		Machines: []v1alpha1.MachineSpec{{InstanceTypes: []string{"p5.48xlarge", "p6-b200.48xlarge"}}},
		Labels:   map[string]string{"example.com/team": "search"},
		Taints:   []v1alpha1.TaintSpec{{Key: "search", Effect: "NoSchedule"}},
	}
}

func TestValidateGPUNodePool(t *testing.T) {
	after := func(d time.Duration) *v1alpha1.DisruptionSpec {
		return &v1alpha1.DisruptionSpec{ConsolidateAfter: &metav1.Duration{Duration: d}}
	}
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.GPUNodePoolSpec)
		want   []violation
	}{
		{"valid", func(*v1alpha1.GPUNodePoolSpec) {}, nil},
		{"an unknown workload", func(s *v1alpha1.GPUNodePoolSpec) { s.Workload = "Training" },
			[]violation{{"spec.workload", `"Training" is not one of Inference, Batch, Research`}}},
		{"no class", func(s *v1alpha1.GPUNodePoolSpec) { s.NodeClassRef.Name = "" }, []violation{{"spec.nodeClassRef.name", "must be given"}}},
		{"no machines", func(s *v1alpha1.GPUNodePoolSpec) { s.Machines = nil },
			[]violation{{"spec.machines", "has 0 entries; 1 to 100 are allowed"}}},
		{"not an instance type", func(s *v1alpha1.GPUNodePoolSpec) { s.Machines[0].InstanceTypes[1] = "p5" },
			[]violation{{"spec.machines[0].instanceTypes[1]", `"p5" does not match ^[a-z0-9-]+\.[a-z0-9-]+$`}}},
		{"an instance type twice", func(s *v1alpha1.GPUNodePoolSpec) { s.Machines[0].InstanceTypes[1] = "p5.48xlarge" },
			[]violation{{"spec.machines[0].instanceTypes[1]", "p5.48xlarge is given twice"}}},
		{"an unknown capacity type", func(s *v1alpha1.GPUNodePoolSpec) { s.CapacityTypes = []v1alpha1.CapacityType{"reserved"} },
			[]violation{{"spec.capacityTypes[0]", `"reserved" is not one of on-demand, spot`}}},
		{"a zone without a name", func(s *v1alpha1.GPUNodePoolSpec) { s.Zones = []string{""} }, []violation{{"spec.zones[0]", "must be given"}}},
		{"a label of ours", func(s *v1alpha1.GPUNodePoolSpec) { s.Labels["gpufleet.dev/pool"] = "x" },
			[]violation{{"spec.labels", "labels under gpufleet.dev, karpenter.sh and nvidia.com are set by gpufleet"}}},
		{"labels of Karpenter and NVIDIA", func(s *v1alpha1.GPUNodePoolSpec) {
			s.Labels["karpenter.sh/nodepool"], s.Labels["nvidia.com/gpu.present"] = "x", "y"
		}, []violation{{"spec.labels", "labels under gpufleet.dev, karpenter.sh and nvidia.com are set by gpufleet"}}},
		{"the GPU taint", func(s *v1alpha1.GPUNodePoolSpec) { s.Taints[0].Key = "nvidia.com/gpu" },
			[]violation{{"spec.taints[0].key", "taints nvidia.com/gpu and those under gpufleet.dev and karpenter.sh are set by gpufleet"}}},
		{"another taint of NVIDIA's", func(s *v1alpha1.GPUNodePoolSpec) { s.Taints[0].Key = "nvidia.com/other" }, nil},
		{"our startup taint", func(s *v1alpha1.GPUNodePoolSpec) { s.Taints[0].Key = "gpufleet.dev/unverified" },
			[]violation{{"spec.taints[0].key", "taints nvidia.com/gpu and those under gpufleet.dev and karpenter.sh are set by gpufleet"}}},
		{"an unknown effect", func(s *v1alpha1.GPUNodePoolSpec) { s.Taints[0].Effect = "Never" },
			[]violation{{"spec.taints[0].effect", `"Never" is not one of NoSchedule, PreferNoSchedule, NoExecute`}}},
		{"a name that is too long", func(s *v1alpha1.GPUNodePoolSpec) {
			s.Zones = []string{strings.Repeat("é", 63), strings.Repeat("é", 64)}
		},
			[]violation{{"spec.zones[1]", "has 64 characters; at most 63 are allowed"}}},
		{"at once", func(s *v1alpha1.GPUNodePoolSpec) { s.Disruption = after(0) }, nil},
		{"after a week and a second", func(s *v1alpha1.GPUNodePoolSpec) { s.Disruption = after(168*time.Hour + time.Second) },
			[]violation{{"spec.disruption.consolidateAfter", "consolidateAfter must be from 0s to 168h"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := validPool()
			tc.change(spec)
			compare(t, tc.want, v1alpha1.ValidateGPUNodePool(spec))
		})
	}
}

func TestValidateGPUNodePool_Limits(t *testing.T) {
	notDollars := func(amount string) []violation {
		return []violation{{"spec.limits.hourlyCost", fmt.Sprintf(`%q does not match ^[0-9]{1,7}(\.[0-9]{1,6})?$`, amount)}}
	}
	cost := func(amount string) v1alpha1.LimitsSpec { return v1alpha1.LimitsSpec{HourlyCost: amount} }
	for _, tc := range []struct {
		name   string
		limits v1alpha1.LimitsSpec
		want   []violation
	}{
		{"all of them", v1alpha1.LimitsSpec{GPUs: new(int64(8)), Nodes: new(int64(1)), HourlyCost: "55.04", Surge: new(int32(1))}, nil},
		{"the least and the most", v1alpha1.LimitsSpec{GPUs: new(int64(0)), Nodes: new(int64(100000)), Surge: new(int32(100))}, nil},
		{"the most GPUs and the fewest nodes", v1alpha1.LimitsSpec{GPUs: new(int64(100000)), Nodes: new(int64(0))}, nil},
		{"none", v1alpha1.LimitsSpec{}, []violation{{"spec.limits", "limits must have at least one of gpus, nodes and hourlyCost"}}},
		{"surge alone", v1alpha1.LimitsSpec{Surge: new(int32(2))},
			[]violation{{"spec.limits", "limits must have at least one of gpus, nodes and hourlyCost"}}},
		{"GPUs below nothing", v1alpha1.LimitsSpec{GPUs: new(int64(-1))}, []violation{{"spec.limits.gpus", "is -1; 0 to 100000 are allowed"}}},
		{"too many GPUs", v1alpha1.LimitsSpec{GPUs: new(int64(100001))}, []violation{{"spec.limits.gpus", "is 100001; 0 to 100000 are allowed"}}},
		{"more GPUs than 32 bits hold", v1alpha1.LimitsSpec{GPUs: new(int64(1 << 32))},
			[]violation{{"spec.limits.gpus", "is 4294967296; 0 to 100000 are allowed"}}},
		{"nodes below nothing", v1alpha1.LimitsSpec{Nodes: new(int64(-1))}, []violation{{"spec.limits.nodes", "is -1; 0 to 100000 are allowed"}}},
		{"too many nodes", v1alpha1.LimitsSpec{Nodes: new(int64(100001))}, []violation{{"spec.limits.nodes", "is 100001; 0 to 100000 are allowed"}}},
		{"no surge", v1alpha1.LimitsSpec{Nodes: new(int64(1)), Surge: new(int32(0))}, []violation{{"spec.limits.surge", "is 0; 1 to 100 are allowed"}}},
		{"too much surge", v1alpha1.LimitsSpec{Nodes: new(int64(1)), Surge: new(int32(101))}, []violation{{"spec.limits.surge", "is 101; 1 to 100 are allowed"}}},
		{"a millionth of a dollar", cost("0.000001"), nil},
		{"the most dollars", cost("9999999.999999"), nil},
		{"dollars below nothing", cost("-1"), notDollars("-1")},
		{"a currency", cost("$60"), notDollars("$60")},
		{"a comma", cost("110,08"), notDollars("110,08")},
		{"seven decimals", cost("1.0000001"), notDollars("1.0000001")},
		{"eight digits", cost("10000000"), notDollars("10000000")},
		{"no digit before the point", cost(".5"), notDollars(".5")},
		{"no digit behind it", cost("5."), notDollars("5.")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := validPool()
			spec.Limits = &tc.limits
			compare(t, tc.want, v1alpha1.ValidateGPUNodePool(spec))
		})
	}
}

func TestValidateGPUNodePoolName_LeavesRoomForWhatIsAddedToIt(t *testing.T) {
	for length, want := range map[int][]violation{
		54: nil,
		55: {{"metadata.name", "the name of a GPUNodePool has at most 54 characters: its NodePools and labels carry it"}},
	} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			compare(t, want, v1alpha1.ValidateGPUNodePoolName(strings.Repeat("a", length)))
		})
	}
}
