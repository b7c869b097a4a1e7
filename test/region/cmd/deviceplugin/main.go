// Command deviceplugin stands in for NVIDIA's device plugin: it reads the configuration that a real one would be given,
// asks this machine's NVML what exists, prints what it would advertise, {"nvidia.com/mig-1g.10gb": 56}, and ends. It never
// sees what anybody wanted the machine to be.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	library := flag.String("nvml-library", "libnvidia-ml.so.1", "NVML library to load")
	path := flag.String("config", "", "configuration file, NVIDIA device plugin config v1")
	flag.Parse()
	if err := run(*library, *path, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(library, path string, out, warnings io.Writer) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	config, err := parseConfig(data)
	if err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	gpus, err := look(library)
	if err != nil {
		return err
	}
	counts, err := advertise(config.Flags.MIGStrategy, gpus, warnings)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(config.Sharing.apply(counts))
}
