package v1alpha1_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// rule is one literal of a CRD: where it stands, which keyword, and the value.
type rule struct{ path, keyword, value string }

// crdRules collects every literal rule of a generated CRD below spec, and those of the object itself. Paths are as
// Violation writes them, [] for items of a list and {} for values of a map.
func crdRules(t *testing.T, plural string) []rule {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "gpufleet.dev_"+plural+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	rules := literals("metadata.name", map[string]any{"x-kubernetes-validations": root["x-kubernetes-validations"]})
	spec := root["properties"].(map[string]any)["spec"].(map[string]any)
	return append(rules, walk("spec", spec)...)
}

func walk(path string, schema map[string]any) []rule {
	rules := literals(path, schema)
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		rules = append(rules, walk(path+"."+name, properties[name].(map[string]any))...)
	}
	if items, ok := schema["items"].(map[string]any); ok {
		rules = append(rules, walk(path+"[]", items)...)
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok {
		rules = append(rules, walk(path+"{}", values)...)
	}
	return rules
}

func literals(path string, schema map[string]any) []rule {
	var rules []rule
	for _, keyword := range []string{
		"pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "default",
	} {
		value, found := schema[keyword]
		if _, object := value.(map[string]any); found && !object { // defaults of objects only repeat those of their fields
			rules = append(rules, rule{path, keyword, fmt.Sprint(value)})
		}
	}
	if values, ok := schema["enum"].([]any); ok {
		rules = append(rules, rule{path, "enum", strings.Trim(fmt.Sprint(values), "[]")})
	}
	validations, _ := schema["x-kubernetes-validations"].([]any)
	for _, v := range validations {
		rules = append(rules, rule{path, "message", v.(map[string]any)["message"].(string)})
	}
	return rules
}

func enum[T ~string](values []T) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return strings.Join(words, " ")
}

// CEL messages, patterns and bounds are written in markers, which cannot refer to constants. Here each literal of the
// generated CRDs meets the constant that the Go functions use; a rule in one and not in the other fails.
func TestCRDs_SayWhatTheGoFunctionsSay(t *testing.T) {
	n := func(i int) string { return fmt.Sprint(i) }
	for plural, want := range map[string][]rule{
		"gpunodeclasses": {
			{"spec.cloud", "message", v1alpha1.MessageOneCloud},
			{"spec.cloud.aws.ami", "message", v1alpha1.MessageOneImage},
			{"spec.cloud.aws.ami.family", "default", string(v1alpha1.AMIFamilies[0])},
			{"spec.cloud.aws.ami.family", "enum", enum(v1alpha1.AMIFamilies)},
			{"spec.cloud.aws.ami.id", "pattern", v1alpha1.PatternImage},
			{"spec.cloud.aws.ami.ssmParameter", "pattern", v1alpha1.PatternSSMParameter},
			{"spec.cloud.aws.ami.ssmParameter", "maxLength", n(v1alpha1.MaxSSMParameterLength)},
			{"spec.cloud.aws.cluster.certificateAuthority", "minLength", "1"},
			{"spec.cloud.aws.cluster.endpoint", "pattern", v1alpha1.PatternEndpoint},
			{"spec.cloud.aws.cluster.name", "pattern", v1alpha1.PatternClusterName},
			{"spec.cloud.aws.cluster.serviceCIDR", "minLength", "1"},
			{"spec.cloud.aws.instanceProfile", "minLength", "1"},
			{"spec.cloud.aws.instanceProfile", "maxLength", n(v1alpha1.MaxInstanceProfileLength)},
			{"spec.cloud.aws.rootVolume.sizeGiB", "minimum", n(v1alpha1.MinRootVolumeGiB)},
			{"spec.cloud.aws.rootVolume.sizeGiB", "maximum", n(v1alpha1.MaxRootVolumeGiB)},
			{"spec.cloud.aws.rootVolume.sizeGiB", "default", n(v1alpha1.DefaultRootVolumeGiB)},
			{"spec.cloud.aws.securityGroups", "minItems", "1"},
			{"spec.cloud.aws.securityGroups", "maxItems", n(v1alpha1.MaxSecurityGroups)},
			{"spec.cloud.aws.securityGroups[]", "pattern", v1alpha1.PatternSecurityGroup},
			{"spec.cloud.aws.subnets", "minItems", "1"},
			{"spec.cloud.aws.subnets", "maxItems", n(v1alpha1.MaxSubnets)},
			{"spec.cloud.aws.subnets[]", "pattern", v1alpha1.PatternSubnet},
			{"spec.driver.minVersion", "pattern", v1alpha1.PatternDriverVersion},
			{"spec.sharing", "message", v1alpha1.MessageTwoStrategies},
			{"spec.sharing", "message", v1alpha1.MessageLayoutsMissing},
			{"spec.sharing", "message", v1alpha1.MessageReplicasElsewhere},
			{"spec.sharing", "message", v1alpha1.MessageReplicasMissing},
			{"spec.sharing", "message", v1alpha1.MessageTimeSlicingOnly},
			{"spec.sharing", "message", v1alpha1.MessageMIGOnly},
			{"spec.sharing.layouts", "maxItems", n(v1alpha1.MaxLayouts)},
			{"spec.sharing.layouts[]", "minLength", "1"},
			{"spec.sharing.layouts[]", "maxLength", n(v1alpha1.MaxNameLength)},
			{"spec.sharing.migStrategy", "enum", enum(v1alpha1.MIGStrategies)},
			{"spec.sharing.replicas", "minimum", n(v1alpha1.MinReplicas)},
			{"spec.sharing.replicas", "maximum", n(v1alpha1.MaxReplicas)},
			{"spec.sharing.strategy", "default", string(v1alpha1.SharingStrategies[0])},
			{"spec.sharing.strategy", "enum", enum(v1alpha1.SharingStrategies)},
			{"spec.verification.timeout", "default", v1alpha1.DefaultVerificationTimeout},
			{"spec.verification.timeout", "message", v1alpha1.MessageVerificationTimeout},
		},
		"miglayouts": {
			{"spec.devices", "minItems", "1"},
			{"spec.devices", "maxItems", n(v1alpha1.MaxDevices)},
			{"spec.devices", "message", v1alpha1.MessageGPUsMissing},
			{"spec.devices", "message", v1alpha1.MessageGPUNamedTwice},
			{"spec.devices[].gpus", "maxItems", n(v1alpha1.MaxGPUs)},
			{"spec.devices[].gpus[]", "minimum", "0"},
			{"spec.devices[].gpus[]", "maximum", n(v1alpha1.MaxGPUIndex)},
			{"spec.devices[].slices", "minItems", "1"},
			{"spec.devices[].slices", "maxItems", n(v1alpha1.MaxSlices)},
			{"spec.devices[].slices[].count", "minimum", "1"},
			{"spec.devices[].slices[].count", "maximum", n(v1alpha1.MaxSliceCount)},
			{"spec.devices[].slices[].profile", "pattern", v1alpha1.PatternMIGProfile},
			{"spec.devices[].slices[].profile", "maxLength", n(v1alpha1.MaxProfileLength)},
			{"spec.gpuModel", "minLength", "1"},
			{"spec.gpuModel", "maxLength", n(v1alpha1.MaxNameLength)},
		},
		"gpunodepools": {
			{"metadata.name", "message", v1alpha1.MessagePoolNameLength},
			{"spec.capacityTypes", "maxItems", n(len(v1alpha1.CapacityTypes))},
			{"spec.capacityTypes[]", "enum", enum(v1alpha1.CapacityTypes)},
			{"spec.disruption.consolidateAfter", "message", v1alpha1.MessageConsolidateAfterRange},
			{"spec.labels", "maxProperties", n(v1alpha1.MaxLabels)},
			{"spec.labels", "message", v1alpha1.MessageReservedLabels},
			{"spec.limits", "message", v1alpha1.MessageLimitsMissing},
			{"spec.limits.gpus", "minimum", "0"},
			{"spec.limits.gpus", "maximum", n(v1alpha1.MaxLimit)},
			{"spec.limits.hourlyCost", "pattern", v1alpha1.PatternHourlyCost},
			{"spec.limits.nodes", "minimum", "0"},
			{"spec.limits.nodes", "maximum", n(v1alpha1.MaxLimit)},
			{"spec.limits.surge", "minimum", n(v1alpha1.MinSurge)},
			{"spec.limits.surge", "maximum", n(v1alpha1.MaxSurge)},
			{"spec.machines", "minItems", "1"},
			{"spec.machines", "maxItems", n(v1alpha1.MaxMachines)},
			{"spec.machines[].instanceTypes", "minItems", "1"},
			{"spec.machines[].instanceTypes", "maxItems", n(v1alpha1.MaxInstanceTypes)},
			{"spec.machines[].instanceTypes[]", "pattern", v1alpha1.PatternInstanceType},
			{"spec.nodeClassRef.name", "minLength", "1"},
			{"spec.nodeClassRef.name", "maxLength", n(v1alpha1.MaxClassNameLength)},
			{"spec.taints", "maxItems", n(v1alpha1.MaxTaints)},
			{"spec.taints", "message", v1alpha1.MessageReservedTaints},
			{"spec.taints[].effect", "enum", enum(v1alpha1.TaintEffects)},
			{"spec.taints[].key", "minLength", "1"},
			{"spec.taints[].key", "maxLength", n(v1alpha1.MaxTaintKeyLength)},
			{"spec.taints[].value", "maxLength", n(v1alpha1.MaxTaintValueLength)},
			{"spec.workload", "enum", enum(v1alpha1.Workloads)},
			{"spec.zones", "maxItems", n(v1alpha1.MaxZones)},
			{"spec.zones[]", "minLength", "1"},
			{"spec.zones[]", "maxLength", n(v1alpha1.MaxNameLength)},
		},
	} {
		t.Run(plural, func(t *testing.T) {
			found := crdRules(t, plural)
			for _, r := range want {
				if !slices.Contains(found, r) {
					t.Errorf("the CRD does not say %s %s %q", r.path, r.keyword, r.value)
				}
			}
			for _, r := range found {
				if !slices.Contains(want, r) {
					t.Errorf("no Go constant is held to the CRD's %s %s %q", r.path, r.keyword, r.value)
				}
			}
		})
	}
}

// Durations, prefixes and name lengths stand inside CEL rules.
func TestCRDs_HoldTheBoundsInsideCELRules(t *testing.T) {
	for plural, literals := range map[string][]string{
		"gpunodeclasses": {"duration(self) >= duration('1m')", "duration('2h')"},
		"gpunodepools": {
			"duration(self) >= duration('0s')", "duration('168h')", "size(self.metadata.name) <= " + fmt.Sprint(v1alpha1.MaxPoolNameLength),
			"t.key != '" + v1alpha1.TaintGPU + "'",
			"!k.startsWith('" + strings.Join(v1alpha1.ReservedPrefixes, "') && !k.startsWith('") + "')",
			"!t.key.startsWith('" + strings.Join(v1alpha1.ReservedTaintPrefixes, "') && !t.key.startsWith('") + "')",
		},
	} {
		data, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "gpufleet.dev_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(string(data)), " ") // the generator folds long lines
		for _, literal := range literals {
			if !strings.Contains(text, literal) {
				t.Errorf("%s: no rule says %s", plural, literal)
			}
		}
	}
	if v1alpha1.MinVerificationTimeout.String() != "1m0s" || v1alpha1.MaxVerificationTimeout.String() != "2h0m0s" ||
		v1alpha1.MaxConsolidateAfter.String() != "168h0m0s" {
		t.Error("the durations of the Go constants are not those of the rules above")
	}
}
