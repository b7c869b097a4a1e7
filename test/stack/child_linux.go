package stack

import "syscall"

// childAttributes puts a child in a process group of its own, so that Ctrl-C in a terminal reaches only us, who end the
// children in order; and ends it if we die without that.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
