package ledger

import (
	"errors"
	"fmt"
	"testing"
)

// busy is a pool with a thousand nodes, and room for two more.
func busy(b *testing.B) *Ledger {
	world := World{}
	for i := range 1000 {
		uid := fmt.Sprint("node", i)
		world.Claims = append(world.Claims, launchedClaim(uid, p5))
		world.Instances = append(world.Instances, instanceOf(uid, p5))
	}
	l := New()
	l.SetLimits(inference, Limits{GPUs: new(int64(8016)), Nodes: new(int64(1002)), HourlyCost: new(Dollars(60_000)), Surge: one})
	rebuild(b, l, world)
	b.ReportAllocs()
	return l
}

func decisions(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

func BenchmarkReserveAndRelease(b *testing.B) {
	l, claim := busy(b), first("new", p5)
	for b.Loop() {
		if err := l.Reserve(inference, claim); err != nil {
			b.Fatal(err)
		}
		l.Release(inference, "new")
	}
	decisions(b)
}

func BenchmarkReserveRefused(b *testing.B) {
	l, claim := busy(b), first("new", Machine{GPUs: 24, Price: Dollar, HasPrice: true})
	var refusal *Refusal
	for b.Loop() {
		if err := l.Reserve(inference, claim); !errors.As(err, &refusal) {
			b.Fatal(err)
		}
	}
	decisions(b)
}

func BenchmarkReserveContended(b *testing.B) {
	l, claim := busy(b), first("node1", p5)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := l.Reserve(inference, claim); err != nil {
				b.Error(err)
			}
		}
	})
	decisions(b)
}

// One usage serves a whole simulation: the cost of closing one offering.
func BenchmarkFits(b *testing.B) {
	usage := busy(b).Usage(inference)
	for b.Loop() {
		if err := usage.Fits(p5); err != nil {
			b.Fatal(err)
		}
	}
	decisions(b)
}

func BenchmarkRebuildOfAThousandNodes(b *testing.B) {
	world := World{}
	for i := range 1000 {
		uid := fmt.Sprint("node", i)
		world.Claims = append(world.Claims, launchedClaim(uid, p5))
		world.Instances = append(world.Instances, instanceOf(uid, p5))
	}
	l := New()
	b.ReportAllocs()
	for b.Loop() {
		rebuild(b, l, world)
	}
}
