package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpufleet/terraform-provider-gpufleet/internal/diagnose"
)

func guide(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "templates", "guides", "command-line.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var documented = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// TestGuide_ListsEveryFieldOfTheOutput holds the guide's tables against the Go types: scripts read these names.
func TestGuide_ListsEveryFieldOfTheOutput(t *testing.T) {
	text := guide(t)
	for _, section := range []struct {
		heading string
		of      reflect.Type
		// said are the embedded fields that another section lists.
		said []reflect.Type
	}{
		{"### Of every command", reflect.TypeFor[about](), nil},
		{"### `status`", reflect.TypeFor[statusReport](), []reflect.Type{reflect.TypeFor[about]()}},
		{"### `explain pod`", reflect.TypeFor[podReport](), []reflect.Type{reflect.TypeFor[about]()}},
		{"### `explain pool`", reflect.TypeFor[poolReport](), []reflect.Type{reflect.TypeFor[about](), reflect.TypeFor[poolSummary]()}},
		{"### `explain node`", reflect.TypeFor[nodeReport](), []reflect.Type{reflect.TypeFor[about](), reflect.TypeFor[machineReport]()}},
	} {
		_, rest, found := strings.Cut(text, "\n"+section.heading+"\n")
		if !found {
			t.Errorf("the guide has no heading %s", section.heading)
			continue
		}
		rest, _, _ = strings.Cut(rest, "\n##")
		var listed []string
		for _, match := range documented.FindAllStringSubmatch(rest, -1) {
			listed = append(listed, match[1])
		}
		slices.Sort(listed)
		want := paths("", section.of, section.said)
		slices.Sort(want)
		if diff := cmp.Diff(want, listed); diff != "" {
			t.Errorf("%s: fields (-) and the guide (+):\n%s", section.heading, diff)
		}
	}
}

// TestGuide_ShowsWhatIsPrinted holds the guide's examples against the program.
func TestGuide_ShowsWhatIsPrinted(t *testing.T) {
	text := guide(t)
	for _, tc := range []struct {
		objects []runtime.Object
		args    []string
	}{
		{scattered(), []string{"explain", "pod", "large"}},
		{fleetOfThree(), []string{"status"}},
	} {
		printed := newWorld(t, tc.objects...).run(t, tc.args...).stdout
		example := "```text\n$ gpufleet " + strings.Join(tc.args, " ") + "\n" + printed + "```\n"
		if !strings.Contains(text, example) {
			t.Errorf("the guide does not show\n%s", example)
		}
	}
}

// leaves are types that the guide describes once, by their name.
var leaves = []reflect.Type{reflect.TypeFor[diagnose.Cause](), reflect.TypeFor[podReference]()}

// paths are the fields of a type: a.b of an object, a[].b of a list of objects. Types of other packages but diagnose are
// not looked into: they have a documentation of their own.
func paths(prefix string, of reflect.Type, said []reflect.Type) []string {
	var all []string
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner, suffix := f.Type, ""
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			if inner.Kind() == reflect.Slice {
				suffix = "[]"
			}
			inner = inner.Elem()
		}
		ours := strings.HasSuffix(inner.PkgPath(), "/gpufleet") || strings.HasSuffix(inner.PkgPath(), "/diagnose")
		switch {
		case name == "-" || (f.Anonymous && slices.Contains(said, inner)):
		case f.Anonymous && inner.Kind() == reflect.Struct:
			all = append(all, paths(prefix, inner, said)...)
		case ours && inner.Kind() == reflect.Struct && !slices.Contains(leaves, inner):
			all = append(all, paths(prefix+name+suffix+".", inner, said)...)
		default:
			all = append(all, prefix+name+suffix)
		}
	}
	return all
}
