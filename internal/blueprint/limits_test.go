package blueprint

import (
	"errors"
	"math/big"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/ledger"
	"github.com/gpufleet/terraform-provider-gpufleet/internal/machine"
)

func sized(gpus int32, price string) v1alpha1.Blueprint {
	return v1alpha1.Blueprint{GPU: v1alpha1.GPUBlueprint{Count: gpus}, PricePerHour: price}
}

func limited(spec *v1alpha1.LimitsSpec) *v1alpha1.GPUNodePool {
	pool := testPool("p5.48xlarge")
	pool.Spec.Limits = spec
	return pool
}

func TestLimits(t *testing.T) {
	p5, four, one := sized(8, "55.04"), sized(4, "4.6016"), sized(1, "6.88")
	unknown := sized(8, "")
	money := func(micro int64) *ledger.Money { return new(ledger.Money(micro)) }
	for _, tc := range []struct {
		name string
		spec *v1alpha1.LimitsSpec
		bps  []v1alpha1.Blueprint
		want ledger.Limits
	}{
		{"none", nil, []v1alpha1.Blueprint{p5}, ledger.Limits{}},
		{"eight GPUs", &v1alpha1.LimitsSpec{GPUs: new(int64(8))}, []v1alpha1.Blueprint{p5},
			ledger.Limits{GPUs: new(int64(8)), Surge: ledger.Amounts{GPUs: 8, Nodes: 1, HourlyCost: 55_040_000}}},
		{"two nodes", &v1alpha1.LimitsSpec{Nodes: new(int64(2))}, []v1alpha1.Blueprint{p5},
			ledger.Limits{Nodes: new(int64(2)), Surge: ledger.Amounts{GPUs: 8, Nodes: 1, HourlyCost: 55_040_000}}},
		{"dollars", &v1alpha1.LimitsSpec{HourlyCost: "110.08"}, []v1alpha1.Blueprint{p5},
			ledger.Limits{HourlyCost: money(110_080_000), Surge: ledger.Amounts{GPUs: 8, Nodes: 1, HourlyCost: 55_040_000}}},
		{"nothing at all", &v1alpha1.LimitsSpec{GPUs: new(int64(0)), Nodes: new(int64(0)), HourlyCost: "0"}, nil,
			ledger.Limits{GPUs: new(int64(0)), Nodes: new(int64(0)), HourlyCost: money(0), Surge: ledger.Amounts{Nodes: 1}}},
		// The most GPUs are one type's and the highest price another's: 3 x 4 GPUs, 3 x 6.88 dollars.
		{"three surge nodes, the largest by each measure", &v1alpha1.LimitsSpec{GPUs: new(int64(8)), Surge: new(int32(3))},
			[]v1alpha1.Blueprint{four, one},
			ledger.Limits{GPUs: new(int64(8)), Surge: ledger.Amounts{GPUs: 12, Nodes: 3, HourlyCost: 20_640_000}}},
		{"one price of two known", &v1alpha1.LimitsSpec{HourlyCost: "60"}, []v1alpha1.Blueprint{unknown, one},
			ledger.Limits{HourlyCost: money(60_000_000), Surge: ledger.Amounts{GPUs: 8, Nodes: 1, HourlyCost: 6_880_000}}},
		{"no price known", &v1alpha1.LimitsSpec{HourlyCost: "60"}, []v1alpha1.Blueprint{unknown},
			ledger.Limits{HourlyCost: money(60_000_000), Surge: ledger.Amounts{GPUs: 8, Nodes: 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Limits(limited(tc.spec), tc.bps)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A caller that went on after the error would be held to a limit, not freed of all.
func TestLimits_OfACostThatCannotBeReadAdmitNothing(t *testing.T) {
	got, err := Limits(limited(&v1alpha1.LimitsSpec{GPUs: new(int64(8)), HourlyCost: "110,08"}), nil)
	want := `pool inference: spec.limits.hourlyCost: "110,08" is not an amount of dollars with at most 7 digits, and 6 behind the point, such as 110.08`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	usage := ledger.Usage{Pool: "inference", Ready: true, Limits: got}
	if usage.Fits(ledger.Machine{GPUs: 1}) == nil {
		t.Error("a machine may launch")
	}
}

func TestDollars(t *testing.T) {
	for amount, want := range map[string]ledger.Money{
		"110.08": 110_080_000, "55.04": 55_040_000, "60": 60_000_000, "0": 0, "0.1": 100_000, "0.3": 300_000, "007.50": 7_500_000,
		"0.000001": 1, "21.957642": 21_957_642, "9999999.999999": 9_999_999_999_999,
		// In floating point these times a million are below what is written: 8199999.999999999, 2009999.9999999998.
		"8.2": 8_200_000, "2.01": 2_010_000,
	} {
		if got, err := dollars(amount); err != nil || got != want {
			t.Errorf("%s is %d, %v; want %d", amount, int64(got), err, int64(want))
		}
	}
	for _, amount := range []string{
		"", ".", ".5", "5.", "-1", "+1", "1e3", "1,5", " 1", "1 ", "0x10", "1_0", "1.+5", "1.-5", "10000000", "1.0000001", "1.2.3", "NaN", "٣",
	} {
		if got, err := dollars(amount); err == nil {
			t.Errorf("%q is %s", amount, got)
		}
	}
}

// The CRD's pattern and the reader must admit the same, and the reader must not round.
func TestDollars_ReadsExactlyWhatTheCRDAdmits(t *testing.T) {
	pattern := regexp.MustCompile(v1alpha1.PatternHourlyCost)
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(
			rapid.StringMatching(`[0-9]{1,7}(\.[0-9]{1,6})?`), rapid.StringMatching(`[0-9]{0,8}(\.[0-9]{0,7})?`), rapid.StringMatching(`[-+_e.0-9]{0,6}`),
		).Draw(t, "amount")
		got, err := dollars(amount)
		if (err == nil) != pattern.MatchString(amount) {
			t.Fatalf("%q: %v, but the pattern says %v", amount, err, pattern.MatchString(amount))
		}
		if err != nil {
			return
		}
		want, _ := new(big.Rat).SetString(amount)
		if want.Mul(want, big.NewRat(1_000_000, 1)).Cmp(new(big.Rat).SetInt64(int64(got))) != 0 {
			t.Errorf("%q is %d millionths, want %s", amount, int64(got), want)
		}
	})
}

func TestMachine_CountsPhysicalGPUsAndAPriceThatIsKnown(t *testing.T) {
	for _, tc := range []struct {
		name string
		bp   v1alpha1.Blueprint
		want ledger.Machine
	}{
		{"a price", sized(8, "55.04"), ledger.Machine{GPUs: 8, Price: 55_040_000, HasPrice: true}},
		{"the highest that is exact in the ledger", sized(1, "999999.999999"), ledger.Machine{GPUs: 1, Price: 999_999_999_999, HasPrice: true}},
		{"none", sized(8, ""), ledger.Machine{GPUs: 8}},
		{"nothing an hour", sized(8, "0"), ledger.Machine{GPUs: 8}},
		{"not a price", sized(8, "much"), ledger.Machine{GPUs: 8}},
		{"more than any machine", sized(8, "1000000"), ledger.Machine{GPUs: 8}},
	} {
		if diff := cmp.Diff(tc.want, Machine(tc.bp)); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

// No price of the table may be lost on its way into the ledger.
func TestMachine_KnowsThePriceOfEveryTypeThatHasOne(t *testing.T) {
	priced := 0
	for _, kind := range machine.Types() {
		bp, err := Compile(testPool(kind.Name), testClass(), nil, kind.Name)
		if err != nil {
			continue // not launchable: no Blueprint, nothing to count
		}
		got := Machine(bp)
		if got.GPUs != int64(kind.GPU.Count) || got.HasPrice != kind.HasPrice || got.Price.PerHour() != kind.PricePerHour {
			t.Errorf("%s: %+v, want %d GPUs at %v (known: %v)", kind.Name, got, kind.GPU.Count, kind.PricePerHour, kind.HasPrice)
		}
		if got.HasPrice {
			priced++
		}
	}
	if priced < 20 {
		t.Errorf("%d types have a price: the table was not read", priced)
	}
}

// kubernetes-sigs/karpenter#1215 and aws/karpenter-provider-aws#3244: a cap on dollars an hour, and no price never counts
// as 0. The price of a p5.48xlarge is 55.04.
func TestC51_AnHourlyCostRefusesTheMachineThatPassesItAndOneWithoutAPrice(t *testing.T) {
	p5, unpriced := compiled(t, testClass(), "p5.48xlarge"), compiled(t, testClass(), "p5e.48xlarge")
	for _, tc := range []struct {
		cost    string
		running int64
		asked   v1alpha1.Blueprint
		want    string // empty: it fits
	}{
		{"60", 0, p5, ""},
		{"60", 1, p5, "pool inference: limit hourlyCost $60.00/h would be passed: $55.04/h in use, $55.04/h asked"},
		{"110.08", 1, p5, ""},
		{"110.079999", 1, p5, "pool inference: limit hourlyCost $110.079999/h would be passed: $55.04/h in use, $55.04/h asked"},
		{"60", 0, unpriced, "pool inference: limit hourlyCost $60.00/h: the price of what is asked is not known, and does not count as nothing: " +
			"ask for instance types whose price is known, or lift this limit"},
	} {
		limits, err := Limits(limited(&v1alpha1.LimitsSpec{HourlyCost: tc.cost}), []v1alpha1.Blueprint{p5, unpriced})
		if err != nil {
			t.Fatal(err)
		}
		used := ledger.Totals{Amounts: ledger.Amounts{GPUs: 8 * tc.running, Nodes: tc.running, HourlyCost: ledger.Money(tc.running) * 55_040_000}}
		usage := ledger.Usage{Pool: "inference", Ready: true, Limits: limits, Steady: used, Outstanding: used}
		err = usage.Fits(Machine(tc.asked))
		var refusal *ledger.Refusal
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s with %d running: %v", tc.cost, tc.running, err)
		case tc.want != "" && (!errors.As(err, &refusal) || err.Error() != tc.want):
			t.Errorf("%s with %d running: got  %v\nwant %s", tc.cost, tc.running, err, tc.want)
		}
	}
}
