package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// process runs a server as a child of this process.
type process struct {
	dir  string
	file string
	bin  string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has been waited for
	log  *bytes.Buffer
}

func newProcess(cfg *Config) (*process, error) {
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, file: filepath.Join(dir, "redis.conf"), bin: cfg.Binary}
	if err := p.configure(cfg); err != nil {
		p.remove()
		return nil, err
	}
	return p, nil
}

func (p *process) configure(cfg *Config) error {
	port, err := freePort(func() int { return 12000 + rand.IntN(20000) })
	if err != nil {
		return err
	}
	cfg.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if cfg.Unix {
		cfg.Addr = filepath.Join(p.dir, "redis.sock")
	}
	text, err := cfg.File("127.0.0.1", port, p.dir)
	if err != nil {
		return err
	}
	return os.WriteFile(p.file, []byte(text), 0o600)
}

func (p *process) remove() { _ = os.RemoveAll(p.dir) }

func (p *process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = &bytes.Buffer{}
	p.cmd = exec.Command(p.bin, p.file) //nolint:gosec,noctx // ended by Kill and by Pdeathsig
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := StartChild(p.cmd); err != nil {
		return fmt.Errorf("start %s: %w (is redis-server installed?)", p.bin, err)
	}
	cmd, done := p.cmd, make(chan struct{})
	p.done = done
	go func() {
		_ = cmd.Wait() // the server's own output says why it ended
		close(done)
	}()
	return nil
}

func (p *process) Alive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return errors.New("not started")
	}
	select {
	case <-p.done: // only then nobody writes to the log any more
		return fmt.Errorf("ended (%v): %s", p.cmd.ProcessState, p.log)
	default:
		return nil
	}
}

func (p *process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

func (p *process) Freeze() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.waitState('T', true)
}

func (p *process) Thaw() error {
	if p.Alive() != nil {
		return nil
	}
	if err := p.signal(syscall.SIGCONT); err != nil {
		return err
	}
	return p.waitState('T', false)
}

func (p *process) signal(sig syscall.Signal) error {
	if err := p.Alive(); err != nil {
		return err
	}
	return p.cmd.Process.Signal(sig)
}

// waitState waits until the process is, or is not, in a state of proc(5): a signal
// is delivered a little after it was sent.
func (p *process) waitState(state byte, want bool) error {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return err
		}
		after := bytes.LastIndexByte(stat, ')') + 2
		if (stat[after] == state) == want {
			return nil
		}
	}
	return fmt.Errorf("process %d: state %c is not %v after %v", p.cmd.Process.Pid, state, want, startTimeout)
}

func (p *process) Forget() error {
	for _, name := range []string{"dump.rdb", "appendonlydir"} {
		if err := os.RemoveAll(filepath.Join(p.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (p *process) Owns(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid == pid
}

// PID is the process id of a server that runs as a process, 0 otherwise.
func (s *Server) PID() int {
	p, ok := s.backend.(*process)
	if !ok || p.Alive() != nil {
		return 0
	}
	return p.cmd.Process.Pid
}
