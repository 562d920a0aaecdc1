package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/podlease/podlease/test/child"
)

// process runs a server as a child of this process.
type process struct {
	dir  string
	file string
	bin  string

	mu    sync.Mutex
	child *child.Process // nil until the first Start
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
	port, err := child.FreePort()
	if err != nil {
		return err
	}
	cfg.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if cfg.Unix {
		cfg.Addr = filepath.Join(p.dir, "redis.sock")
	}
	if slices.Contains(cfg.Lines, "cluster-enabled yes") { // whose own port is else 10000 above, and may be taken
		bus, err := child.FreePort()
		if err != nil {
			return err
		}
		cfg.Lines = append(cfg.Lines, "cluster-port "+strconv.Itoa(bus))
	}
	text, err := cfg.File("127.0.0.1", port, p.dir)
	if err != nil {
		return err
	}
	return os.WriteFile(p.file, []byte(text), 0o600)
}

func (p *process) remove() { _ = os.RemoveAll(p.dir) }

func (p *process) current() *child.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

func (p *process) Start() error {
	c, err := child.Start(exec.CommandContext(context.Background(), p.bin, p.file))
	if err != nil {
		return fmt.Errorf("%w (is redis-server installed?)", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child = c
	return nil
}

func (p *process) Alive() error {
	c := p.current()
	if c == nil {
		return errors.New("not started")
	}
	if state := c.Ended(); state != nil {
		return fmt.Errorf("ended (%v): %s", state, c.Output())
	}
	return nil
}

func (p *process) Kill() error {
	if c := p.current(); c != nil {
		return c.Kill()
	}
	return nil
}

func (p *process) Freeze() error {
	if err := p.Alive(); err != nil {
		return err
	}
	return p.current().Freeze()
}

func (p *process) Thaw() error {
	if c := p.current(); c != nil {
		return c.Thaw()
	}
	return nil
}

func (p *process) Forget() error {
	for _, name := range []string{"dump.rdb", "appendonlydir"} {
		if err := os.RemoveAll(filepath.Join(p.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (p *process) Owns(pid int) bool { return p.current().PID() == pid }

// PID is the process id of a server that runs as a process, 0 otherwise.
func (s *Server) PID() int {
	p, ok := s.backend.(*process)
	if !ok || p.Alive() != nil {
		return 0
	}
	return p.current().PID()
}
