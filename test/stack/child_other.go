//go:build !linux

package stack

import "syscall"

// childAttributes puts a child in a process group of its own, so that Ctrl-C in a terminal reaches only us, who end the
// children in order. Only Linux can also tie the child's life to ours.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
