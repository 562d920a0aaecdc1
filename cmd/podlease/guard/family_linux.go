package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The exit codes of a shell for a command that cannot be started.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// Process starts a command in a process group of its own.
//
// There may be one in a program, which it makes the reaper of whatever the command leaves
// behind, as an init does: so all of that can be found, and none stays a zombie. When the
// program is killed, the kernel kills the command.
type Process struct {
	path string
	argv []string
	env  []string

	starts chan func()

	mu      sync.Mutex // held while a child is started: it is not reaped before its number is known
	current *family    // nil while no command runs
}

// NewProcess finds the program. The error is an *ExitError with the code a shell would use.
func NewProcess(argv, env []string) (*Process, error) {
	path, err := exec.LookPath(argv[0])
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, &ExitError{exitNotExecutable, err.Error()}
	case err != nil:
		return nil, &ExitError{exitNotFound, err.Error()}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of the command's processes: %w", err)
	}
	p := &Process{path: path, argv: argv, env: env, starts: make(chan func())}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go p.nursery()
	go p.reapAll(children)
	return p, nil
}

// nursery starts the command from one thread that never ends: the kernel takes the end of
// the thread that started a child for the end of its parent (golang/go#27505).
func (p *Process) nursery() {
	runtime.LockOSThread()
	for start := range p.starts {
		start()
	}
}

// Start implements Command.
func (p *Process) Start(env []string, allowed func() bool) (Family, error) {
	attr := &syscall.ProcAttr{
		Env:   append(without(p.env, "PODLEASE_TERM", "PODLEASE_FENCING_TOKEN"), env...),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Foreground: foreground()},
	}
	f := &family{main: make(chan struct{}), gone: make(chan struct{}), mark: newMark(), foreground: attr.Sys.Foreground}
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	started := make(chan struct{})
	p.starts <- func() {
		defer close(started)
		if !allowed() {
			err = ErrTooLate
			return
		}
		f.pid, err = syscall.ForkExec(p.path, p.argv, attr) //nolint:gosec // the command is what the user asks for
	}
	<-started
	if err != nil {
		f.mark.remove()
		return nil, startError(p.path, err)
	}
	p.current = f
	return f, nil
}

func startError(path string, err error) error {
	if errors.Is(err, ErrTooLate) {
		return err
	}
	return &ExitError{exitNotExecutable, fmt.Sprintf("start %s: %v", path, err)}
}

// without leaves out variables that say nothing of this command.
func without(env []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(names, name)
	})
}

// reapInterval is how often is looked for children that have ended, besides at each
// signal that says so.
const reapInterval = time.Second

// reapAll reaps children for good: a container's first process gets those of others too.
func (p *Process) reapAll(signals <-chan os.Signal) {
	tick := time.NewTicker(reapInterval)
	defer tick.Stop()
	for {
		p.reap()
		select {
		case <-signals:
		case <-tick.C:
		}
	}
}

// reap takes in what has ended. Whose parent has ended becomes our child, so without
// children nothing is left of the command, whatever sessions and groups it made.
func (p *Process) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil && p.current != nil: // ECHILD
			p.current.finish()
			p.current = nil
			return
		case err != nil || pid == 0:
			return
		case p.current != nil && pid == p.current.pid:
			p.current.end(status)
		}
	}
}

// family is a running command with all processes that come of it.
type family struct {
	pid        int
	mark       mark
	foreground bool
	main, gone chan struct{}

	mu     sync.Mutex
	ended  bool
	status syscall.WaitStatus
}

func (f *family) end(status syscall.WaitStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended, f.status = true, status
	close(f.main)
}

func (f *family) finish() {
	f.mark.remove()
	if f.foreground {
		takeForeground()
	}
	close(f.gone)
}

// Main implements Family.
func (f *family) Main() <-chan struct{} { return f.main }

// Gone implements Family.
func (f *family) Gone() <-chan struct{} { return f.gone }

// Code implements Family.
func (f *family) Code() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status.Signaled() {
		return 128 + int(f.status.Signal())
	}
	return f.status.ExitStatus()
}

// Signal implements Family.
func (f *family) Signal(sig syscall.Signal) {
	f.mu.Lock() // the command's process is not reaped meanwhile
	defer f.mu.Unlock()
	if !f.ended && sig != syscall.SIGTERM && sig != syscall.SIGKILL {
		_ = syscall.Kill(-f.pid, sig)
		return
	}
	left := children()
	// Without its leader a group may be empty, and its number somebody else's; as long as
	// a child of ours is in it, it is neither.
	if !f.ended || slices.ContainsFunc(left, func(c process) bool { return c.group == f.pid }) {
		_ = syscall.Kill(-f.pid, sig)
	}
	for _, c := range left {
		if c.group != f.pid { // left behind to us by a parent outside of the group, or one that has left it
			_ = syscall.Kill(c.pid, sig)
		}
	}
}

type process struct{ pid, group int }

// children are the own children, zombies included; none if /proc is of another PID
// namespace, whose numbers mean nothing here.
func children() []process {
	own := os.Getpid()
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(own) {
		return nil
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // what was read so far is what there is
	var found []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent, group, ok := parentOf(pid); ok && parent == own {
			found = append(found, process{pid, group})
		}
	}
	return found
}

// parentOf reads proc_pid_stat(5): pid (name) state parent group. The name may contain
// anything.
func parentOf(pid int) (parent, group int, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0, 0, false
	}
	group, err = strconv.Atoi(string(fields[2]))
	return parent, group, err == nil
}

// foreground reports whether we have the terminal, which the command then gets.
func foreground() bool {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// takeForeground takes the terminal back, as a shell does.
func takeForeground() {
	signal.Ignore(syscall.SIGTTOU) // else it would stop us
	_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, syscall.Getpgrp())
	signal.Reset(syscall.SIGTTOU)
}
