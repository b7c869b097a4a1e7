package blueprint

import "testing"

func BenchmarkLayout(b *testing.B) {
	spec := testLayout("h100", "H100-80GB-SXM", seven).Spec
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Layout(spec); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	pool, class, layouts := testPool("p5.48xlarge"), testClass("h100"), byName(testLayout("h100", "H100-80GB-SXM", seven))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(pool, class, layouts, "p5.48xlarge"); err != nil {
			b.Fatal(err)
		}
	}
}
