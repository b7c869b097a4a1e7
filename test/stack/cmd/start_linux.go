package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// startOf is when a process started, in clock ticks since boot (field 22 of /proc/PID/stat, proc_pid_stat(5)); empty
// when there is no such process, or only its zombie, which some init reaps late.
func startOf(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("asking when process %d started: %w", pid, err)
	}
	// The second field is the program's name in parentheses and may itself hold spaces and parentheses.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	const processState, startTime = 0, 19 // fields 3 and 22: the first one after the name is number 3
	if len(fields) <= startTime {
		return "", fmt.Errorf("asking when process %d started: /proc/%d/stat has only %d fields", pid, pid, len(fields)+2)
	}
	if fields[processState] == "Z" {
		return "", nil
	}
	return fields[startTime], nil
}
