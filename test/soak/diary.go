package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// diary says what happens, with the time, on standard output and in a file.
type diary struct {
	mu   sync.Mutex // keeps lines whole
	out  io.Writer
	file *os.File
	err  error // of the first line that could not be written
}

func openDiary(path string) (*diary, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return &diary{out: io.MultiWriter(os.Stdout, file), file: file}, nil
}

func (d *diary) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := fmt.Fprintln(d.out, time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, args...)); d.err == nil {
		d.err = err
	}
}

func (d *diary) close() error { return errors.Join(d.err, d.file.Close()) }
