package diagnose

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
)

// source is a pool of whole GPUs on p5.48xlarge with a class in two zones, at generation 3.
func source() Source {
	pool := &v1alpha1.GPUNodePool{ObjectMeta: metav1.ObjectMeta{Name: "inf", Generation: 3}, Spec: v1alpha1.GPUNodePoolSpec{
		Workload: v1alpha1.WorkloadInference, NodeClassRef: v1alpha1.NodeClassReference{Name: "whole"},
		Machines: []v1alpha1.MachineSpec{{InstanceTypes: []string{"p5.48xlarge"}}},
	}}
	class := &v1alpha1.GPUNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "whole"}, Spec: v1alpha1.GPUNodeClassSpec{
		Cloud: v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{}}, Sharing: exclusive(),
	}}
	class.Status.Subnets = []v1alpha1.SubnetStatus{{ID: "subnet-b", Zone: "us-east-1b"}, {ID: "subnet-a", Zone: "us-east-1a"}, {ID: "subnet-c", Zone: "us-east-1a"}}
	return Source{Pool: pool, Class: class, Bound: nobody, Leaving: nobody, Now: noon, Usage: &ledger.Usage{Pool: "inf", Ready: true}}
}

func nobody(string) []*corev1.Pod { return nil }

func condition(kind string, status metav1.ConditionStatus, generation int64) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: "Because", Message: "of something", ObservedGeneration: generation}
}

func TestAssemble_SaysWhyAPoolLaunchesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Source)
		want   string
	}{
		"it may launch": {func(*Source) {}, ""},
		"it is accepted and ready": {func(s *Source) {
			s.Pool.Status.Conditions = []metav1.Condition{condition("Accepted", "True", 3), condition("Ready", "True", 3)}
		}, ""},
		"it is not accepted":         {func(s *Source) { s.Pool.Status.Conditions = []metav1.Condition{condition("Accepted", "False", 3)} }, "Accepted is False (Because): of something"},
		"it was not, before an edit": {func(s *Source) { s.Pool.Status.Conditions = []metav1.Condition{condition("Accepted", "False", 2)} }, ""},
		"its class is not ready": {func(s *Source) {
			s.Pool.Status.Conditions = []metav1.Condition{condition("Accepted", "True", 3), condition("Ready", "False", 3)}
		}, "Ready is False (Because): of something"},
		"its class is being resolved": {func(s *Source) { s.Pool.Status.Conditions = []metav1.Condition{condition("Ready", "Unknown", 3)} }, ""},
		"it is going":                 {func(s *Source) { s.Pool.DeletionTimestamp = &metav1.Time{Time: noon} }, "it is being deleted"},
		"its class is nowhere":        {func(s *Source) { s.Class = nil }, `node class "whole" does not exist: declare it, or name one that does`},
		"no zone is left":             {func(s *Source) { s.Pool.Spec.Zones = []string{"us-east-1f"} }, "no subnet of GPUNodeClass whole is known in the pool's zones"},
		"nobody knows its machine":    {func(s *Source) { s.Pool.Spec.Machines[0].InstanceTypes = []string{"g9.huge"} }, "GPUNodePool inf: spec.machines[0].instanceTypes[0]: instance type g9.huge is not a known"},
	} {
		t.Run(name, func(t *testing.T) {
			s := source()
			tc.change(&s)
			pool, err := Assemble(s)
			if err != nil || !strings.HasPrefix(pool.Trouble, tc.want) || (tc.want == "") != (pool.Trouble == "") {
				t.Errorf("trouble is %q (%v), want %q", pool.Trouble, err, tc.want)
			}
		})
	}
}

func TestAssemble_OffersEachTypeOnceInEachZoneByEachCapacityType(t *testing.T) {
	s := source()
	s.Pool.Spec.Machines = append(s.Pool.Spec.Machines, v1alpha1.MachineSpec{InstanceTypes: []string{"g6.xlarge", "p5.48xlarge"}})
	s.Pool.Spec.CapacityTypes = []v1alpha1.CapacityType{v1alpha1.CapacityTypeSpot, v1alpha1.CapacityTypeOnDemand}
	pool, err := Assemble(s)
	if err != nil || len(pool.Offers) != 2 || pool.Offers[0].Blueprint.InstanceType != "p5.48xlarge" {
		t.Fatalf("offers are %+v (%v)", pool.Offers, err)
	}
	var ways []string
	for _, way := range pool.Offers[0].Ways {
		ways = append(ways, string(way.CapacityType)+" "+way.Zone)
	}
	if got, want := strings.Join(ways, ", "), "spot us-east-1a, spot us-east-1b, on-demand us-east-1a, on-demand us-east-1b"; got != want {
		t.Errorf("ways are %s, want %s", got, want)
	}
}

func TestAssemble_TakesWhatTheCloudRefusesFromTheStatus(t *testing.T) {
	s := source()
	until := metav1.NewTime(noon.Add(time.Minute))
	s.Pool.Status.Unavailable = []v1alpha1.UnavailableOffering{
		{InstanceType: "p5.48xlarge", Zone: "us-east-1a", CapacityType: "on-demand", Reason: "NoCapacity", Message: "none left", Until: until},
	}
	pool, err := Assemble(s)
	want := Blocked{InstanceType: "p5.48xlarge", Zone: "us-east-1a", CapacityType: "on-demand", Reason: "NoCapacity", Message: "none left", Until: until.Time}
	if err != nil || len(pool.Blocked) != 1 || pool.Blocked[0] != want {
		t.Errorf("blocked are %+v (%v), want %+v", pool.Blocked, err, want)
	}
}

// Without a ledger to ask, the sums are those that its controller wrote last.
func TestAssemble_ReadsTheSumsBackFromTheStatus(t *testing.T) {
	s := source()
	s.Usage = nil
	s.Pool.Spec.Limits = &v1alpha1.LimitsSpec{GPUs: new(int64(16)), Nodes: new(int64(3)), HourlyCost: "120"}
	s.Pool.Status.Limits = []v1alpha1.LimitStatus{
		{Name: "GPUs", Limit: "16", Used: "8", Outstanding: "16"}, {Name: "Nodes", Limit: "3", Used: "1", Outstanding: "2"},
		{Name: "HourlyCost", Limit: "$120.00/h", Used: "$55.04/h", Outstanding: "$110.08/h"},
	}
	pool, err := Assemble(s)
	if err != nil || !pool.Usage.Ready || pool.Usage.Pool != "inf" || *pool.Usage.Limits.GPUs != 16 || pool.Usage.Limits.Surge.Nodes != 1 {
		t.Fatalf("usage is %+v (%v)", pool.Usage, err)
	}
	if got, want := pool.Usage.Steady.Amounts, (ledger.Amounts{GPUs: 8, Nodes: 1, HourlyCost: 55_040_000}); got != want {
		t.Errorf("steady is %+v, want %+v", got, want)
	}
	if got, want := pool.Usage.Outstanding.Amounts, (ledger.Amounts{GPUs: 16, Nodes: 2, HourlyCost: 110_080_000}); got != want {
		t.Errorf("outstanding is %+v, want %+v", got, want)
	}
	s.Pool.Status.Limits[0].Used = "eight"
	if _, err := Assemble(s); err == nil || !strings.Contains(err.Error(), `limit GPUs: used "eight"`) {
		t.Errorf("of a status that nobody wrote so: %v", err)
	}
}
