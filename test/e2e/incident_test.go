package e2e

import (
	"context"
	"testing"

	"github.com/gpufleet/terraform-provider-gpufleet/test/stack"
)

// start builds what is missing and starts a stack that ends with the test.
func start(t *testing.T, options ...stack.Options) (context.Context, *Scene) {
	t.Helper()
	ctx := t.Context()
	if err := stack.Build(ctx, testWriter{t}); err != nil {
		t.Fatal(err)
	}
	o := stack.Options{}
	if len(options) > 0 {
		o = options[0]
	}
	o.Dir = t.TempDir()
	running, err := stack.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Errorf("stopping the stack: %v", err)
		}
	})
	scene, err := NewScene(ctx, running, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return ctx, scene
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(p))
	return len(p), nil
}

// TestStory_C11_C01 plays the demo's story. Among its steps are, for C11, the order of the writes: matching inventory before
// the taint goes, taint gone before the first binding; and for C01 a reached limit, said in every place and cleared.
func TestStory_C11_C01(t *testing.T) {
	ctx, scene := start(t)
	for _, step := range Story() {
		ok := t.Run(step.Title, func(t *testing.T) {
			observed, err := step.Do(ctx, scene)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(observed)
		})
		if !ok {
			t.FailNow()
		}
	}
}
