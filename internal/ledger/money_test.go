package ledger

import (
	"math"
	"testing"
)

func TestMoney_IsWrittenInCentsAndExactly(t *testing.T) {
	for _, tc := range []struct {
		perHour float64
		want    string
	}{
		{0, "$0.00/h"}, {55.04, "$55.04/h"}, {60, "$60.00/h"}, {0.8048, "$0.8048/h"}, {0.526, "$0.526/h"},
		{113.9328, "$113.9328/h"}, {0.000001, "$0.000001/h"}, {20000, "$20000.00/h"}, {0.5, "$0.50/h"},
	} {
		if got := Dollars(tc.perHour).String(); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.perHour, got, tc.want)
		}
	}
	if got := Money(-1_500_000).String(); got != "-$1.50/h" {
		t.Errorf("minus one and a half: %s", got)
	}
}

func TestMoney_AsAnAmountThatALimitCanBeSetTo(t *testing.T) {
	for _, tc := range []struct {
		money Money
		want  string
	}{
		{0, "0"}, {55_040_000, "55.04"}, {100_000_000, "100"}, {30_131_180, "30.13118"}, {1, "0.000001"}, {-1_500_000, "-1.5"},
	} {
		if got := tc.money.Amount(); got != tc.want {
			t.Errorf("%d: %s, want %s", tc.money, got, tc.want)
		}
	}
}

func TestDollars_AreNeverBelowZeroNorTooMany(t *testing.T) {
	for _, tc := range []struct {
		perHour float64
		want    Money
	}{
		{math.NaN(), 0}, {-1, 0}, {math.Inf(-1), 0}, {math.Inf(1), maxMoney}, {1e300, maxMoney}, {55.04, 55_040_000},
	} {
		if got := Dollars(tc.perHour); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.perHour, got, tc.want)
		}
	}
	if got := Dollars(55.04).PerHour(); got != 55.04 {
		t.Errorf("back in dollars: %v, want 55.04", got)
	}
}

func TestNewMachine_TakesNoPriceForAPriceThatCannotBe(t *testing.T) {
	for _, tc := range []struct {
		name    string
		perHour float64
		known   bool
		want    Machine
	}{
		{"a list price", 55.04, true, p5},
		{"a price that no list has", 0, false, nameless},
		{"zero", 0, true, nameless},
		{"below zero", -1, true, nameless},
		{"below a millionth", 1e-9, true, nameless},
		{"not a number", math.NaN(), true, nameless},
		{"a million, which stands for unknown where prices only order", 1e6, true, nameless},
		{"a figure that is not said to be known", 55.04, false, nameless},
	} {
		if got := NewMachine(8, tc.perHour, tc.known); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// Ten cents and twenty are thirty, and nothing is left when they are gone.
func TestReserve_AddsMoneyExactly(t *testing.T) {
	l := ready(t, cost(0.3))
	launch(t, l, "a", NewMachine(1, 0.1, true))
	launch(t, l, "b", NewMachine(1, 0.2, true))
	wantSums(t, l, "2 GPUs, 2 nodes, $0.30/h", "2 GPUs, 2 nodes, $0.30/h")
	l.Forget(inference, "a")
	l.Forget(inference, "b")
	wantSums(t, l, nothing, nothing)
}

func TestSurge_IsThePoolsLargestMachine(t *testing.T) {
	for _, tc := range []struct {
		name     string
		nodes    int64
		machines []Machine
		want     Amounts
	}{
		{"one of one", 1, []Machine{p5}, Amounts{GPUs: 8, Nodes: 1, HourlyCost: 55_040_000}},
		{"one of several: the most of each", 1, []Machine{g6, {GPUs: 4, Price: 90_000_000, HasPrice: true}, p5}, Amounts{GPUs: 8, Nodes: 1, HourlyCost: 90_000_000}},
		{"two", 2, []Machine{p5}, Amounts{GPUs: 16, Nodes: 2, HourlyCost: 110_080_000}},
		{"none", 0, []Machine{p5}, Amounts{}},
		{"fewer than none", -1, []Machine{p5}, Amounts{}},
		{"an unknown price adds no money", 1, []Machine{nameless}, Amounts{GPUs: 8, Nodes: 1}},
		{"no machines", 1, nil, Amounts{Nodes: 1}},
	} {
		if got := Surge(tc.nodes, tc.machines...); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	if got := Surge(math.MaxInt64, Machine{GPUs: maxGPUs, Price: maxPrice - 1, HasPrice: true}); got.GPUs < 0 || got.HourlyCost < 0 {
		t.Errorf("the largest surge overflows: %+v", got)
	}
}
