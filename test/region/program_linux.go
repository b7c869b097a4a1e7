package region

import "syscall"

// programAttributes keeps Ctrl-C in a terminal from a machine's programs, which end when their machine does, and ends them
// if the region dies without ending them.
func programAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
