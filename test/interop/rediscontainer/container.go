// Package rediscontainer starts Redis in containers, with the same interface as
// redistest does as processes.
package rediscontainer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/podlease/podlease/test/child"
	"github.com/podlease/podlease/test/redistest"
)

// timeout bounds one thing asked of the daemon.
const timeout = 2 * time.Minute

// port is where the server listens in its container.
const port = 6379

// Available reports why no containers can be run, nil if they can.
func Available(ctx context.Context) error {
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return fmt.Errorf("no Docker daemon answers: %w (run tests through hack/with-docker)", err)
	}
	return docker.Close()
}

// Cluster starts n independent Redis containers with the same options.
func Cluster(tb redistest.TB, n int, options ...redistest.Option) []*redistest.Server {
	tb.Helper()
	servers := make([]*redistest.Server, n)
	for i := range servers {
		servers[i] = Start(tb, options...)
	}
	return servers
}

// Start starts Redis in a container, reached through a port of loopback, and removes
// it with the test.
func Start(tb redistest.TB, options ...redistest.Option) *redistest.Server {
	tb.Helper()
	b, cfg, err := prepare(redistest.NewConfig(options...))
	if err != nil {
		tb.Fatalf("rediscontainer: %v", err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(b.Forget(), b.docker.Close()); err != nil {
			tb.Logf("rediscontainer: %v", err)
		}
	})
	return redistest.Run(tb, cfg, b)
}

// box is a container that is made anew when it has to forget.
type box struct {
	docker *client.Client
	image  string
	config string // the server's configuration file
	port   int    // of loopback

	container testcontainers.Container // nil until Start
}

func prepare(cfg redistest.Config) (*box, redistest.Config, error) {
	if cfg.Unix || cfg.CA != nil {
		return nil, cfg, errors.New("sockets and TLS are for processes: see redistest.Start")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, cfg, err
	}
	b := &box{docker: docker.Client}
	if b.image, err = image(ctx, b.docker); err != nil {
		return nil, cfg, errors.Join(err, docker.Close())
	}
	if b.port, err = child.FreePort(); err != nil {
		return nil, cfg, errors.Join(err, docker.Close())
	}
	cfg.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port))
	b.config, err = cfg.File("0.0.0.0", port, "/data")
	return b, cfg, err
}

// Start implements redistest.Backend.
func (b *box) Start() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if b.container != nil {
		_, err := b.docker.ContainerStart(ctx, b.container.GetContainerID(), client.ContainerStartOptions{})
		return err
	}
	published := network.MustParsePort(strconv.Itoa(port) + "/tcp")
	c, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		Started: true,
		ContainerRequest: testcontainers.ContainerRequest{
			Image:        b.image,
			Entrypoint:   []string{"redis-server", "/redis.conf"},
			ExposedPorts: []string{published.String()},
			Files:        []testcontainers.ContainerFile{{Reader: strings.NewReader(b.config), ContainerFilePath: "/redis.conf", FileMode: 0o644}},
			HostConfigModifier: func(h *container.HostConfig) {
				h.PortBindings = network.PortMap{published: {{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: strconv.Itoa(b.port)}}}
			},
		},
	})
	b.container = c
	return err
}

// Alive implements redistest.Backend.
func (b *box) Alive() error {
	if b.container == nil {
		return errors.New("not started")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	state, err := b.container.State(ctx)
	if err != nil {
		return err
	}
	if !state.Running {
		return fmt.Errorf("container ended with code %d: %s", state.ExitCode, state.Error)
	}
	return nil
}

// Kill implements redistest.Backend.
func (b *box) Kill() error {
	if b.Alive() != nil {
		return nil // it has ended already
	}
	if err := b.Thaw(); err != nil { // signals do not reach a paused container
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	wait := b.docker.ContainerWait(ctx, b.container.GetContainerID(), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	if _, err := b.docker.ContainerKill(ctx, b.container.GetContainerID(), client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
		return err
	}
	select {
	case <-wait.Result:
		return nil
	case err := <-wait.Error:
		return err
	}
}

// Freeze implements redistest.Backend.
func (b *box) Freeze() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := b.docker.ContainerPause(ctx, b.container.GetContainerID(), client.ContainerPauseOptions{})
	return err
}

// Thaw implements redistest.Backend.
func (b *box) Thaw() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	state, err := b.container.State(ctx)
	if err != nil || !state.Paused {
		return err
	}
	_, err = b.docker.ContainerUnpause(ctx, b.container.GetContainerID(), client.ContainerUnpauseOptions{})
	return err
}

// Forget implements redistest.Backend.
func (b *box) Forget() error {
	if b.container == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := b.container.Terminate(ctx)
	b.container = nil
	return err
}

// Owns implements redistest.Backend: the port is the container's alone.
func (b *box) Owns(int) bool { return true }
