package provider

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// nodeClass is the API object that a configuration, plan or cluster says. Unknown values are zero.
func nodeClass(x *expanded) (*v1alpha1.GPUNodeClass, error) {
	var class v1alpha1.GPUNodeClass
	class.Name = x.name
	return &class, x.decode(&class.Spec)
}

// nodeClassRules are the rules that a class breaks by itself.
func nodeClassRules(x *expanded) ([]v1alpha1.Violation, error) {
	class, err := nodeClass(x)
	if err != nil {
		return nil, err
	}
	return append(v1alpha1.ValidateGPUNodeClass(&class.Spec), emptyNodeClassFields(x)...), nil
}

// emptyNodeClassFields finds optional fields that are given and empty. The API's Go types cannot tell them from fields
// that are left out, but the API server can, and refuses them.
func emptyNodeClassFields(x *expanded) []v1alpha1.Violation {
	var found []v1alpha1.Violation
	for _, at := range []string{
		"sharing.migStrategy", "sharing.strategy", "verification.timeout", "cloud.aws.ami.family", "cloud.aws.ami.id", "cloud.aws.ami.ssmParameter",
		"cloud.aws.rootVolume.sizeGiB",
	} {
		v, given, err := unstructured.NestedFieldNoCopy(x.spec, steps(at)...)
		if err == nil && given && (v == "" || v == int64(0) || v == "0s") {
			found = append(found, v1alpha1.Violation{Path: "spec." + at, Message: fmt.Sprintf("%q is empty; leave the attribute out instead", fmt.Sprint(v))})
		}
	}
	return found
}

// layouts finds the layouts of a class by name. decided is false where one of them may exist and cannot be looked at now;
// missing are those that are nowhere.
func (s *session) layouts(ctx context.Context, class *v1alpha1.GPUNodeClass) (found map[string]*v1alpha1.MIGLayout, missing []string, decided bool, err error) {
	found, decided = map[string]*v1alpha1.MIGLayout{}, true
	for _, name := range class.Spec.Sharing.Layouts {
		x, p := s.find(ctx, migLayoutKind, name)
		switch {
		case p == absent:
			missing = append(missing, name)
			continue
		case p == undecided, len(x.unknown) > 0:
			decided = false
			continue
		}
		spec, err := migLayoutSpec(&x)
		if err != nil {
			return nil, nil, false, err
		}
		layout := &v1alpha1.MIGLayout{Spec: spec}
		layout.Name = name
		found[name] = layout
	}
	return found, missing, decided, nil
}
