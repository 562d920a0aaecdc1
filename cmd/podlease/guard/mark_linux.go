package guard

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
)

// mark tells podlease exec probe that a command runs in this container. It is an abstract
// socket, so it needs no place that can be written, and is gone with the process that made
// it, however that ends. Its name is the message: the network namespace is that of the
// whole Pod, but the mount namespace is the container's own.
type mark struct{ socket *net.UnixConn }

const markPrefix = "@podlease-exec/"

// newMark sets a mark. Without it the command runs as well, and its probes succeed.
func newMark() mark {
	container, err := container()
	if err != nil {
		return mark{}
	}
	name := fmt.Sprintf("%s%s/%d/%d", markPrefix, container, os.Getpid(), boottime.Now())
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return mark{}
	}
	return mark{socket}
}

func (m mark) remove() {
	if m.socket != nil {
		_ = m.socket.Close()
	}
}

// container names the mount namespace, such as 4026531841.
func container() (string, error) {
	link, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return "", err
	}
	return strings.Trim(link, "mnt:[]"), nil
}

// RunningFor reports whether a command runs under podlease exec in this container, and
// for how long the one that was started last.
func RunningFor() (running bool, since time.Duration, err error) {
	container, err := container()
	if err != nil {
		return false, 0, fmt.Errorf("find out which container this is: %w", err)
	}
	sockets, err := os.Open("/proc/net/unix")
	if err != nil {
		return false, 0, fmt.Errorf("find out whether a command runs: %w", err)
	}
	defer sockets.Close()
	var started time.Duration
	lines := bufio.NewScanner(sockets)
	for lines.Scan() {
		_, name, found := strings.Cut(lines.Text(), " "+markPrefix+container+"/")
		if !found {
			continue
		}
		_, start, _ := strings.Cut(name, "/")
		if n, err := strconv.ParseInt(start, 10, 64); err == nil {
			running, started = true, max(started, time.Duration(n))
		}
	}
	if err := lines.Err(); err != nil {
		return false, 0, fmt.Errorf("find out whether a command runs: %w", err)
	}
	return running, boottime.Now() - started, nil
}
