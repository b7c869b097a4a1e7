//go:build !linux

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// startOf is when a process started, as ps writes it; empty when there is no such process.
func startOf(pid int) (string, error) {
	out, err := exec.Command("ps", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", nil // ps found none
	}
	if err != nil {
		return "", fmt.Errorf("asking when process %d started: %w", pid, err)
	}
	return strings.TrimSpace(string(out)), nil
}
