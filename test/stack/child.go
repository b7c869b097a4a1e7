package stack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// gracePeriod is how long a process may take to end by itself. The API server takes about a second.
const gracePeriod = 15 * time.Second

// command says how to run a child. Its environment is env and nothing of ours: a developer's KUBECONFIG, proxies or
// AWS profile must not reach it.
type command struct {
	name string
	path string
	args []string
	env  []string
	log  string
}

// child is a process that we started and will wait for.
type child struct {
	name    string
	log     string
	pid     int
	process *os.Process
	done    chan struct{} // closed when the process has ended and was waited for
	err     error         // how it ended; to be read after done is closed
}

// startChild runs the command. The goroutine that waits for it keeps the thread that forked it: Linux sends the parent
// death signal when that thread ends, not when the process does (golang/go#27505).
func startChild(c command) (*child, error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting %s: its log: %w", c.name, err)
	}
	cmd := exec.Command(c.path, c.args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, log, log
	cmd.SysProcAttr = childAttributes()
	ch := &child{name: c.name, log: c.log, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ch.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			err = cmd.Wait()
		}
		ch.err = errors.Join(err, log.Close())
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	ch.process, ch.pid = cmd.Process, cmd.Process.Pid
	return ch, nil
}

func (c *child) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// kill ends the process at once and waits for it.
func (c *child) kill() error {
	if err := c.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s (pid %d): %w", c.name, c.pid, err)
	}
	<-c.done
	return nil
}

// stop asks the process to end and kills it if it has not done so after the grace period.
func (c *child) stop() error {
	if err := c.process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s (pid %d): %w", c.name, c.pid, err)
	}
	patience := time.NewTimer(gracePeriod)
	defer patience.Stop()
	select {
	case <-c.done:
		return nil
	case <-patience.C:
		return errors.Join(fmt.Errorf("%s (pid %d) did not end within %s of SIGTERM and was killed; its log is %s",
			c.name, c.pid, gracePeriod, c.log), c.kill())
	}
}

// ended describes a process that ended although nobody stopped it.
func (c *child) ended() error {
	how := "exit status 0"
	if c.err != nil {
		how = c.err.Error()
	}
	return fmt.Errorf("%s (pid %d) ended by itself: %s\n%s", c.name, c.pid, how, tail(c.log))
}

// tailLines is how much of a log an error shows.
const tailLines = 15

func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(its log cannot be read: %v)", err)
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return fmt.Sprintf("the end of %s:\n  %s", path, strings.Join(lines, "\n  "))
}

// family is every process of one stack.
type family struct {
	died     chan error // receives the first member that ended unasked
	mu       sync.Mutex // guards members
	members  []*child   // in the order in which they were started
	watchers sync.WaitGroup
}

func newFamily() *family { return &family{died: make(chan error, 1)} }

// start runs the command as a member.
func (f *family) start(c command) (*child, error) {
	ch, err := startChild(c)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = append(f.members, ch)
	f.watchers.Go(func() {
		<-ch.done
		if f.has(ch) {
			select {
			case f.died <- ch.ended():
			default: // an earlier death is being told already
			}
		}
	})
	return ch, nil
}

func (f *family) has(ch *child) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, member := range f.members {
		if member == ch {
			return true
		}
	}
	return false
}

// release takes a member out, so that its end counts as asked for.
func (f *family) release(ch *child) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, member := range f.members {
		if member == ch {
			f.members = append(f.members[:i:i], f.members[i+1:]...)
			return
		}
	}
}

// stop ends every member, the youngest first, and waits for all of them.
func (f *family) stop() error {
	f.mu.Lock()
	members := f.members
	f.members = nil
	f.mu.Unlock()
	var errs []error
	for i := len(members) - 1; i >= 0; i-- {
		errs = append(errs, members[i].stop())
	}
	f.watchers.Wait()
	return errors.Join(errs...)
}
