package cloud

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestError_SaysOperationClassCodeAndTheCloudsWords(t *testing.T) {
	for name, tc := range map[string]struct {
		err  *Error
		want string
	}{
		"the cloud answered": {
			&Error{Class: ClassQuota, Operation: "RunInstances", Code: "VcpuLimitExceeded", Message: "limit of 64", Err: errors.New("raw")},
			"RunInstances: QuotaExceeded: VcpuLimitExceeded: limit of 64",
		},
		"no answer came": {
			&Error{Class: ClassTransient, Operation: "RunInstances", Err: context.DeadlineExceeded},
			"RunInstances: Transient: context deadline exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.err.Error(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if !errors.Is(tc.err, tc.err.Err) {
				t.Errorf("%v does not wrap %v", tc.err, tc.err.Err)
			}
		})
	}
}

func TestClassOf_FindsTheClassUnderWrapping(t *testing.T) {
	capacity := &Error{Class: ClassCapacity, Operation: "RunInstances", Code: "InsufficientInstanceCapacity"}
	for name, tc := range map[string]struct {
		err  error
		want Class
	}{
		"itself":         {capacity, ClassCapacity},
		"wrapped":        {fmt.Errorf("launching: %w", capacity), ClassCapacity},
		"joined":         {errors.Join(errors.New("other"), capacity), ClassCapacity},
		"somebody's own": {errors.New("other"), ClassTransient},
	} {
		if got := ClassOf(tc.err); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestState_OnlyTerminatedIsGone(t *testing.T) {
	for state, want := range map[State]struct{ gone, ending bool }{
		StatePending:      {false, false},
		StateRunning:      {false, false},
		StateStopping:     {false, false},
		StateStopped:      {false, false},
		StateShuttingDown: {false, true},
		StateTerminated:   {true, true},
	} {
		if state.Gone() != want.gone || state.Ending() != want.ending {
			t.Errorf("%s: gone %t, ending %t; want %t, %t", state, state.Gone(), state.Ending(), want.gone, want.ending)
		}
	}
}

// C05: a message carries no account id.
func TestWords_AreTheCodeAndTheCloudsOwnWithoutTheAccount(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a quota": {
			&Error{Class: ClassQuota, Operation: "RunInstances", Code: "VcpuLimitExceeded", Message: "You have requested more vCPU capacity than your current vCPU limit of 192 allows"},
			"VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of 192 allows",
		},
		"a role of an account": {
			&Error{Code: "UnauthorizedOperation", Message: "User: arn:aws:sts::123456789012:assumed-role/x is not authorized. Encoded authorization failure message: AbC_-12"},
			"UnauthorizedOperation: User: arn:aws:sts::(left out):assumed-role/x is not authorized. (left out)",
		},
		"several lines":     {&Error{Code: "InternalError", Message: "a\n  b"}, "InternalError: a b"},
		"no cloud's error":  {errors.New("connection refused"), "connection refused"},
		"more than it may":  {errors.New(strings.Repeat("x", 401)), strings.Repeat("x", 400) + "..."},
		"wrapped by others": {fmt.Errorf("launching: %w", &Error{Code: "InsufficientInstanceCapacity"}), "InsufficientInstanceCapacity"},
	} {
		if got := Words(tc.err); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}
