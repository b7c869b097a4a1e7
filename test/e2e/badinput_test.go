package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// badInput is one mistake, as a person would make it in Terraform and as it stands in the cluster when it came another
// way. Both must be told in the same words.
type badInput struct {
	name string
	// layout, class and pool change the quickstart's; nil leaves one out.
	layout func(*v1alpha1.MIGLayout)
	class  func(*v1alpha1.GPUNodeClass)
	pool   func(*v1alpha1.GPUNodePool)
	// hcl replaces text of the quickstart's main.tf, from and to in turn.
	hcl []string
	// path is what Terraform's diagnostic must point at.
	path string
	// words must be said by plan and cluster both.
	words []string
	// reason is that of the pool's Accepted condition; empty where the API server refuses the object.
	reason string
}

var badInputs = []badInput{
	{
		name: "an unplaceable layout",
		layout: func(l *v1alpha1.MIGLayout) {
			l.Spec.Devices[0].Slices = []v1alpha1.MIGSlice{{Profile: "3g.40gb", Count: 2}, {Profile: "1g.10gb", Count: 1}}
		},
		hcl:    []string{`{ profile = "1g.10gb", count = 7 }`, `{ profile = "3g.40gb", count = 2 }, { profile = "1g.10gb", count = 1 }`},
		path:   "devices",
		words:  []string{"3g.40gb", "1g.10gb", "H100-80GB-SXM"},
		reason: v1alpha1.ReasonInvalidLayout,
	},
	{
		name: "an unknown profile",
		layout: func(l *v1alpha1.MIGLayout) {
			l.Spec.Devices[0].Slices = []v1alpha1.MIGSlice{{Profile: "1g.5gb", Count: 7}}
		},
		hcl:    []string{`profile = "1g.10gb"`, `profile = "1g.5gb"`},
		path:   "devices",
		words:  []string{"1g.5gb", "1g.10gb", "7g.80gb", "H100-80GB-SXM"},
		reason: v1alpha1.ReasonInvalidLayout,
	},
	{
		name: "an instance type with other GPUs than the layout's",
		pool: func(p *v1alpha1.GPUNodePool) {
			p.Spec.Machines = []v1alpha1.MachineSpec{{InstanceTypes: []string{"p4d.24xlarge"}}}
		},
		hcl:    []string{`"p5.48xlarge"`, `"p4d.24xlarge"`},
		path:   "instance_types",
		words:  []string{"p4d.24xlarge", "A100-40GB", "h100-7x1g10gb", "H100-80GB-SXM"},
		reason: v1alpha1.ReasonSKUMismatch,
	},
	{
		name:   "a limit that no machine fits",
		pool:   func(p *v1alpha1.GPUNodePool) { p.Spec.Limits = &v1alpha1.LimitsSpec{GPUs: new(int64(7))} },
		hcl:    []string{"gpus = var.inference_gpus", "gpus = 7"},
		path:   "limits",
		words:  []string{"7 is less than any machine of the pool has", "p5.48xlarge", "8 GPUs", "Set 8 or more"},
		reason: v1alpha1.ReasonInvalidPool,
	},
	{
		name:   "a missing class",
		class:  nil,
		hcl:    []string{`gpufleet_node_class.h100_mig.name`, `"no-such-class"`},
		pool:   func(p *v1alpha1.GPUNodePool) { p.Spec.NodeClassRef.Name = "no-such-class" },
		path:   "node_class",
		words:  []string{`node class "no-such-class" does not exist`},
		reason: v1alpha1.ReasonClassNotFound,
	},
	{
		name:  "two sharing strategies",
		class: func(c *v1alpha1.GPUNodeClass) { c.Spec.Sharing.Strategy = v1alpha1.SharingExclusive },
		hcl:   []string{`strategy = "MIG"`, `strategy = "Exclusive"`},
		path:  "sharing",
		words: []string{v1alpha1.MessageTwoStrategies},
	},
}

func TestBadInput_IsRefusedAtPlanAndInTheClusterInTheSameWords(t *testing.T) {
	ctx, scene := start(t)
	for i, each := range badInputs {
		t.Run(each.name, func(t *testing.T) {
			plan := each.plan(ctx, t, scene)
			cluster := each.apply(ctx, t, scene, i)
			for _, words := range each.words {
				if !strings.Contains(plan, words) {
					t.Errorf("the plan does not say %q:\n%s", words, plan)
				}
				if !strings.Contains(cluster, words) {
					t.Errorf("the cluster does not say %q:\n%s", words, cluster)
				}
			}
			if each.reason != "" && !strings.Contains(plan, sentence(cluster)) {
				t.Errorf("not the same words. Cluster:\n%s\nPlan:\n%s", sentence(cluster), plan)
			}
		})
	}
	books, err := scene.Books(ctx)
	if err != nil || len(books) != 0 {
		t.Errorf("the region's books show %d instances (%v), want none", len(books), err)
	}
}

// plan wants Terraform to refuse and returns what it said, as one line.
func (b badInput) plan(ctx context.Context, t *testing.T, scene *Scene) string {
	t.Helper()
	tf, err := newTerraform(scene.Stack, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(tf.Dir, "main.tf")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := string(text)
	for i := 0; i < len(b.hcl); i += 2 {
		if !strings.Contains(changed, b.hcl[i]) {
			t.Fatalf("the quickstart has no %q to change", b.hcl[i])
		}
		changed = strings.Replace(changed, b.hcl[i], b.hcl[i+1], 1)
	}
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	code, output, err := tf.Run(ctx, "plan", "-no-color")
	if err != nil {
		t.Fatal(err)
	}
	if code != 1 || strings.Contains(output, "panic") {
		t.Fatalf("plan exited %d, want a refusal:\n%s", code, output)
	}
	if !strings.Contains(output, b.path) {
		t.Errorf("the diagnostic does not point at %q:\n%s", b.path, output)
	}
	return strings.Join(strings.Fields(output), " ")
}

// apply creates the objects and returns what the cluster says of them.
func (b badInput) apply(ctx context.Context, t *testing.T, scene *Scene, number int) string {
	t.Helper()
	layout, class, pool := b.objects(scene, number)
	var created []client.Object
	t.Cleanup(func() {
		for _, object := range created {
			if err := client.IgnoreNotFound(scene.Client.Delete(context.WithoutCancel(ctx), object)); err != nil {
				t.Error(err)
			}
		}
	})
	for _, object := range []client.Object{layout, class, pool} {
		err := scene.Client.Create(ctx, object)
		if err != nil && b.reason == "" {
			return err.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		created = append(created, object)
	}
	if b.reason == "" {
		t.Fatal("the API server took it")
	}
	said, err := await(ctx, 30*time.Second, "Accepted=False", func(ctx context.Context) (string, bool, error) {
		if err := scene.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return "", false, err
		}
		accepted := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionAccepted)
		if accepted == nil {
			return "no condition", false, nil
		}
		if accepted.Status != metav1.ConditionFalse || accepted.Reason != b.reason {
			return "", false, fmt.Errorf("Accepted=%s %s: %s", accepted.Status, accepted.Reason, accepted.Message)
		}
		return accepted.Message, true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// objects are the quickstart's, with the mistake in them. Names of the cluster's copies carry the case's number, but in
// the words of a condition they must be the plan's: the layout keeps its name.
func (b badInput) objects(scene *Scene, number int) (*v1alpha1.MIGLayout, *v1alpha1.GPUNodeClass, *v1alpha1.GPUNodePool) {
	layout := &v1alpha1.MIGLayout{
		ObjectMeta: metav1.ObjectMeta{Name: layoutName},
		Spec: v1alpha1.MIGLayoutSpec{GPUModel: "H100-80GB-SXM", Devices: []v1alpha1.MIGDevices{
			{Slices: []v1alpha1.MIGSlice{{Profile: "1g.10gb", Count: 7}}},
		}},
	}
	class := &v1alpha1.GPUNodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: className},
		Spec: v1alpha1.GPUNodeClassSpec{
			Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{
				Subnets: []string{"subnet-0a1b2c3d4e5f60001"}, SecurityGroups: []string{"sg-0a1b2c3d4e5f60001"},
				InstanceProfile: "gpufleet-node", AMI: v1alpha1.AMISpec{ID: "ami-0a1b2c3d4e5f60001"},
				Cluster: v1alpha1.ClusterSpec{Name: "gpufleet-local", Endpoint: scene.Stack.Server, CertificateAuthority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=", ServiceCIDR: "10.96.0.0/16"},
			}},
			Sharing: v1alpha1.SharingSpec{Strategy: v1alpha1.SharingMIG, Layouts: []string{layoutName}},
		},
	}
	pool := &v1alpha1.GPUNodePool{
		ObjectMeta: metav1.ObjectMeta{Name: poolName},
		Spec: v1alpha1.GPUNodePoolSpec{
			Workload: v1alpha1.WorkloadInference, NodeClassRef: v1alpha1.NodeClassReference{Name: className},
			Machines: []v1alpha1.MachineSpec{{InstanceTypes: []string{"p5.48xlarge"}}},
		},
	}
	if b.layout != nil {
		b.layout(layout)
	}
	if b.class != nil {
		b.class(class)
	}
	if b.pool != nil {
		b.pool(pool)
	}
	return layout, class, pool
}

// sentence is what both sides share of an Accepted condition: without the object and path in front, which Terraform shows
// as the attribute.
func sentence(condition string) string {
	parts := strings.SplitN(condition, ": ", 3)
	return parts[len(parts)-1]
}
