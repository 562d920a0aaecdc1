// Package child runs programs under a test's control: killed, frozen and thawed at
// will, and never outliving the test's process.
package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// patience bounds how long the kernel may take for what it does at once on an idle
// machine.
const patience = 20 * time.Second

// Process is a running program, or one that ran.
type Process struct {
	cmd    *exec.Cmd
	done   chan struct{} // closed when the program was waited for
	output output
}

// Start starts a command and collects what it prints. The kernel kills it when this
// process ends, however it ends.
//
// The kernel sends that signal when the *thread* that started the child ends
// (golang/go#27505), so all children are started from one thread that never does.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	nursery() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // ProcessState tells how it ended
		close(p.done)
	}()
	return p, nil
}

var nursery = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output is what the program has printed so far, on both streams.
func (p *Process) Output() string { return p.output.String() }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports how the program ended, nil while it runs.
func (p *Process) Ended() *os.ProcessState {
	select {
	case <-p.done:
		return p.cmd.ProcessState
	default:
		return nil
	}
}

// Signal sends a signal.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill ends the program by SIGKILL, and waits for its end. It does nothing to one
// that has ended.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// Freeze stops the program by SIGSTOP, and returns when it stands still.
func (p *Process) Freeze() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.waitStopped(true)
}

// Thaw lets a frozen program run on. It does nothing to one that runs or has ended.
func (p *Process) Thaw() error {
	if p.Ended() != nil {
		return nil
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	return p.waitStopped(false)
}

// waitStopped waits until the program is, or is not, stopped: a signal acts a
// little after it was sent.
func (p *Process) waitStopped(want bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
		if err != nil {
			return err
		}
		state := stat[bytes.LastIndexByte(stat, ')')+2] // proc(5)
		if (state == 'T') == want {
			return nil
		}
	}
	return fmt.Errorf("process %d: stopped is not %v after %v", p.PID(), want, patience)
}

// FreePort finds a free port of 127.0.0.1 below the range that outgoing connections
// use, so that a server that is down for a while gets its port again.
func FreePort() (int, error) {
	for range 200 {
		port := 12000 + rand.IntN(20000)
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no free port on 127.0.0.1 after 200 tries")
}

// output is a buffer that may be read while a program writes to it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
