package walls_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// finding is one import that a rule refused.
type finding struct{ File, Import, Rule string }

// TestEveryWallFires builds a house of fixtures at the rooms' own paths, one import a file, and runs the real linter
// with the real configuration over it. A house a wall: fixtures of two walls could import one another in a circle.
func TestEveryWallFires(t *testing.T) {
	for _, wall := range refused {
		t.Run(wall.rule, func(t *testing.T) {
			house := newHouse(t)
			var want []finding
			for _, room := range wall.rooms {
				for _, imported := range wall.imports {
					want = append(want, finding{house.add(room, imported), imported, wall.rule})
				}
			}
			got := house.lint()
			for _, expected := range want {
				if !got[expected] {
					t.Errorf("%s: the wall did not fire on the import of %s", expected.File, expected.Import)
				}
			}
		})
	}
}

func TestEveryDoorIsOpen(t *testing.T) {
	house := newHouse(t)
	for _, door := range permitted {
		house.write(door.file, door.imports...)
	}
	for f := range house.lint() {
		t.Errorf("%s: the wall %s refuses the import of %s", f.File, f.Rule, f.Import)
	}
}

// TestEveryRuleIsProved keeps a rule without a fixture out of the configuration.
func TestEveryRuleIsProved(t *testing.T) {
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						Files []string `json:"files"`
					} `json:"rules"`
				} `json:"depguard"`
			} `json:"settings"`
		} `json:"linters"`
	}
	data, err := os.ReadFile(filepath.Join(repository(t), ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	var configured, proved []string
	for name, rule := range config.Linters.Settings.Depguard.Rules {
		configured = append(configured, name)
		for _, pattern := range rule.Files {
			if pattern != "!$test" && !strings.HasPrefix(strings.TrimPrefix(pattern, "!"), "${config-path}/") {
				t.Errorf("rule %s: the pattern %s does not begin with ${config-path}/: depguard compares it with absolute paths", name, pattern)
			}
		}
	}
	for _, wall := range refused {
		proved = append(proved, wall.rule)
	}
	slices.Sort(configured)
	slices.Sort(proved)
	if diff := cmp.Diff(configured, proved); diff != "" {
		t.Errorf("rules of .golangci.yml (-) and rules that house_test.go proves (+):\n%s", diff)
	}
}

// house is a temporary module with our module's name, our linter configuration, and fixtures.
type house struct {
	t     *testing.T
	dir   string
	files int
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir()}
	config, err := os.ReadFile(filepath.Join(repository(t), ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	gomod := fmt.Sprintf("module %s\n\ngo 1.27\n", module)
	if err := errors.Join(os.WriteFile(filepath.Join(h.dir, ".golangci.yml"), config, 0o644),
		os.WriteFile(filepath.Join(h.dir, "go.mod"), []byte(gomod), 0o644)); err != nil {
		t.Fatal(err)
	}
	return h
}

// add writes a file with one import into a room and returns its name. In the root only main.go is a room.
func (h *house) add(room, imported string) string {
	h.t.Helper()
	h.files++
	if room == "." {
		h.append("main.go", imported)
		return "main.go"
	}
	name := filepath.Join(room, fmt.Sprintf("fixture%03d.go", h.files))
	h.write(name, imported)
	return name
}

func (h *house) write(name string, imports ...string) {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("package fixture\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
	for _, imported := range imports {
		h.append(name, imported)
	}
}

func (h *house) append(name, imported string) {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		content, err = []byte("package fixture\n"), nil
	}
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, fmt.Appendf(content, "\nimport _ %q\n", imported), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

var refusal = regexp.MustCompile(`^import '([^']+)' is not allowed from list '([^']+)'`)

// lint runs golangci-lint of the tools module. depguard works on syntax alone, so the imports need not resolve.
func (h *house) lint() map[finding]bool {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), "go", "tool", "-modfile="+filepath.Join(repository(h.t), "internal", "tools", "go.mod"),
		"golangci-lint", "run", "--enable-only", "depguard", "--uniq-by-line=false", "--max-same-issues=0", "--max-issues-per-linter=0",
		"--issues-exit-code=0", "--allow-parallel-runners", "--show-stats=false", "--output.json.path=stdout", "./...")
	cmd.Dir = h.dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("golangci-lint: %v\n%s%s", err, out, stderr.String())
	}
	var report struct {
		Issues []struct {
			FromLinter, Text string
			Pos              struct{ Filename string }
		}
	}
	if err := json.NewDecoder(strings.NewReader(string(out))).Decode(&report); err != nil {
		h.t.Fatalf("golangci-lint's report: %v\n%s", err, out)
	}
	found := map[finding]bool{}
	for _, issue := range report.Issues {
		m := refusal.FindStringSubmatch(issue.Text)
		if issue.FromLinter != "depguard" || m == nil {
			h.t.Fatalf("golangci-lint says something else about the fixtures: %s: %s: %s", issue.Pos.Filename, issue.FromLinter, issue.Text)
		}
		found[finding{issue.Pos.Filename, m[1], m[2]}] = true
	}
	return found
}
