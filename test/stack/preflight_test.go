package stack

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestPreflight_NamesEverythingThatIsMissingAtOnce(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // a machine with nothing on it
	err := preflight(t.Context(), t.TempDir(), requirements())
	if err == nil {
		t.Fatal("a machine with nothing on it passes")
	}
	for _, want := range []string{
		"lacks 5 of", "Go: ", "go.dev/dl", "gcc is not on PATH", "apt-get install gcc", "make is not on PATH",
		"terraform or tofu is not on PATH", "opentofu.org", "kubectl is not on PATH",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestPreflight_PassesWhereNothingIsMissing(t *testing.T) {
	fine := requirement{name: "air", check: func(context.Context, string) error { return nil }}
	if err := preflight(t.Context(), t.TempDir(), []requirement{fine}); err != nil {
		t.Error(err)
	}
}

func TestPreflight_SaysWhatWasFound(t *testing.T) {
	full := requirement{name: "disk space", install: "free some",
		check: func(context.Context, string) error { return errors.New("0.5 GB free, 6.4 GB needed") }}
	err := preflight(t.Context(), t.TempDir(), []requirement{full})
	want := "this machine lacks 1 of what the local stage needs:\n  disk space: 0.5 GB free, 6.4 GB needed\n    free some"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestShellExports_QuotesAndExtendsPATH(t *testing.T) {
	got := shellExports([]string{"A=it's", `TF_VAR_subnets=["a","b"]`, "EMPTY=", "PATH=/repo/build/bin:/usr/bin"}, "/repo/build/bin")
	want := `export A='it'\''s'
export TF_VAR_subnets='["a","b"]'
export EMPTY=''
export PATH='/repo/build/bin':"$PATH"
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
