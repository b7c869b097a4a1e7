//go:build !linux

package region

import "syscall"

// programAttributes keeps Ctrl-C in a terminal from a machine's programs, which end when their machine does.
func programAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
