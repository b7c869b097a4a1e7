package walls_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/gpufleet/terraform-provider-gpufleet"

// linked says what must not be in a binary, at any depth. Karpenter with controller-runtime takes the provider from
// 23.7 MB to 44.8 MB; the agent runs on every node.
var linked = []struct {
	name      string
	pkg       string
	forbidden []string
}{
	{"the Terraform provider", ".", []string{
		"sigs.k8s.io/karpenter", "sigs.k8s.io/controller-runtime", "github.com/aws/aws-sdk-go", "github.com/NVIDIA/go-nvml",
		module + "/controller/karpenter", module + "/test",
	}},
	{"the agent", "./controller/cmd/agent", []string{
		"sigs.k8s.io/karpenter", "sigs.k8s.io/controller-runtime", "github.com/aws/aws-sdk-go", "github.com/hashicorp/terraform-plugin",
		module + "/provider", module + "/test",
	}},
	{"the command line", "./controller/cmd/gpufleet", []string{
		"sigs.k8s.io/karpenter", "sigs.k8s.io/controller-runtime", "github.com/aws/aws-sdk-go", "github.com/NVIDIA/go-nvml",
		"github.com/hashicorp/terraform-plugin", module + "/provider", module + "/controller/karpenter", module + "/test",
	}},
	{"the controller", "./controller/cmd/controller", []string{
		"github.com/NVIDIA/go-nvml", "github.com/hashicorp/terraform-plugin",
		module + "/provider", module + "/test",
	}},
	{"the emulated region", "./test/region", []string{
		"sigs.k8s.io/karpenter", "sigs.k8s.io/controller-runtime",
		module + "/internal", module + "/controller", module + "/provider",
	}},
	{"the device plugin's stand-in", "./test/region/cmd/deviceplugin", []string{
		module + "/internal", module + "/controller", module + "/provider",
	}},
	{"the fake NVML", "./test/nvml", []string{
		module + "/internal", module + "/controller", module + "/provider",
	}},
}

func TestBinariesLinkNothingForbidden(t *testing.T) {
	for _, binary := range linked {
		t.Run(binary.name, func(t *testing.T) {
			deps := dependencies(t, binary.pkg)
			for _, dep := range deps {
				for _, prefix := range binary.forbidden {
					if dep == prefix || strings.HasPrefix(dep, prefix+"/") || strings.HasPrefix(dep, prefix+"-") {
						t.Errorf("%s (%s) links %s: nothing of %s may be in it; go mod why -vendor shows who brings it",
							binary.name, binary.pkg, dep, prefix)
					}
				}
			}
		})
	}
}

// dependencies lists every package that a package links, itself included.
func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg)
	cmd.Dir = repository(t)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v\n%s", pkg, err, stderr.String())
	}
	deps := strings.Fields(string(out))
	if len(deps) < 2 {
		t.Fatalf("go list -deps %s names %d packages: the test would prove nothing", pkg, len(deps))
	}
	return deps
}

func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}
