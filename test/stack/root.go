package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	modulePath = "github.com/gpufleet/terraform-provider-gpufleet"
	binDir     = "build/bin"
	libDir     = "build/lib"
)

// Root finds the repository: the nearest directory, from the working directory upwards, whose go.mod is the product's.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("looking for the repository: %w", err)
		}
		if first, _, _ := strings.Cut(string(data), "\n"); strings.TrimSpace(first) == "module "+modulePath {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("looking for the repository: no go.mod of module %s in %s or above; run this inside a checkout",
				modulePath, start)
		}
	}
}
