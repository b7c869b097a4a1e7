package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestOwner_NobodyWhereNothingWasStarted(t *testing.T) {
	wantNobody(t, stage{dir: t.TempDir()})
}

func TestOwner_IsTheProcessThatClaimed(t *testing.T) {
	s := stage{dir: t.TempDir()}
	release, err := s.claim()
	if err != nil {
		t.Fatal(err)
	}
	owner, ok, err := s.owner()
	if err != nil || !ok || owner.PID != os.Getpid() {
		t.Errorf("owner() = %+v, %t, %v, want this process (%d)", owner, ok, err, os.Getpid())
	}
	if _, err := s.claim(); err == nil || !strings.Contains(err.Error(), "another process runs it") {
		t.Errorf("a second claim is answered with %v, want a refusal", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	release, err = s.claim()
	if err != nil {
		t.Fatalf("the stage cannot be claimed again: %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

// The pid of a stage that crashed may be anybody's by now.
func TestDown_NeverStopsAProcessThatOnlyHasThePid(t *testing.T) {
	stranger := exec.Command("sleep", "300")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = stranger.Process.Kill(), stranger.Wait() }()
	s := stage{dir: t.TempDir()}
	started, err := startOf(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	writeClaim(t, s, process{PID: stranger.Process.Pid, Started: "another time than " + started})
	wantNobody(t, s)
	if err := down(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("down stopped a stranger: %v", err)
	}
}

func TestOwner_NobodyOnceTheProcessHasEnded(t *testing.T) {
	ended := exec.Command("sleep", "300")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	s := stage{dir: t.TempDir()}
	started, err := startOf(ended.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	writeClaim(t, s, process{PID: ended.Process.Pid, Started: started})
	if owner, ok, err := s.owner(); err != nil || !ok {
		t.Fatalf("owner() = %+v, %t, %v, want the process while it lives", owner, ok, err)
	}
	if err := ended.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := ended.Wait(); !errors.As(err, &exit) {
		t.Fatal(err)
	}
	wantNobody(t, s)
}

func wantNobody(t *testing.T, s stage) {
	t.Helper()
	if owner, ok, err := s.owner(); ok || err != nil {
		t.Errorf("owner() = %+v, %t, %v, want nobody", owner, ok, err)
	}
}

func writeClaim(t *testing.T, s stage, p process) {
	t.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.claimFile(), data, 0o644); err != nil {
		t.Fatal(err)
	}
}
