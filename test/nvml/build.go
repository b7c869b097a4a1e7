package nvml

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

//go:embed lib
var sources embed.FS

// libraryName is what NVML's clients dlopen, and headerModule the Go module that ships NVIDIA's nvml.h.
const (
	libraryName  = "libnvidia-ml.so.1"
	headerModule = "github.com/NVIDIA/go-nvml"
)

var compilerFlags = []string{"-shared", "-fPIC", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror",
	"-fvisibility=hidden", "-Wl,-soname," + libraryName}

// Build compiles the library with gcc into dir and returns its path. It does nothing where dir already holds what these
// sources make; several processes may build into one directory at once.
func Build(ctx context.Context, dir string) (lib string, err error) {
	sum, err := sourceSum()
	if err != nil {
		return "", err
	}
	lib, stamp := filepath.Join(dir, libraryName), filepath.Join(dir, libraryName+".sum")
	if _, err := os.Stat(lib); err == nil {
		if have, err := os.ReadFile(stamp); err == nil && string(have) == sum {
			return lib, nil
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("building the fake NVML: %w", err)
	}
	work, err := os.MkdirTemp(dir, ".nvml-build-*")
	if err != nil {
		return "", fmt.Errorf("building the fake NVML: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	built, err := compile(ctx, work)
	if err != nil {
		return "", err
	}
	if err := os.Rename(built, lib); err != nil {
		return "", fmt.Errorf("building the fake NVML: %w", err)
	}
	return lib, replace(stamp, []byte(sum))
}

func compile(ctx context.Context, work string) (string, error) {
	if err := os.CopyFS(work, sources); err != nil {
		return "", fmt.Errorf("building the fake NVML: %w", err)
	}
	header, err := headerDir(ctx)
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(work, "lib", "*.c"))
	if err != nil {
		return "", err
	}
	out := filepath.Join(work, libraryName)
	args := append([]string{}, compilerFlags...)
	args = append(args, "-isystem", header, "-o", out)
	if _, err := run(ctx, "", "gcc", append(args, files...)...); err != nil {
		return "", fmt.Errorf("building the fake NVML needs gcc: %w", err)
	}
	return out, nil
}

// headerDir asks the go command for the module that ships nvml.h, from this package's directory, so that the caller's
// working directory does not matter.
func headerDir(ctx context.Context) (string, error) {
	dir := ""
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if _, err := os.Stat(file); err == nil {
			dir = filepath.Dir(file)
		}
	}
	out, err := run(ctx, dir, "go", "list", "-m", "-f", "{{.Dir}}", headerModule)
	if err != nil {
		return "", fmt.Errorf("looking for nvml.h in module %s: %w", headerModule, err)
	}
	return filepath.Join(strings.TrimSpace(out), "pkg", "nvml"), nil
}

func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// sourceSum identifies what Build makes: the sources and the flags.
func sourceSum() (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, compilerFlags)
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := sources.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(data), data)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading the sources of the fake NVML: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
