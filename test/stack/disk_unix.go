//go:build unix

package stack

import (
	"os"
	"syscall"
)

// freeBytes is what an unprivileged user may still write on the file system of a path.
func freeBytes(path string) (uint64, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}
