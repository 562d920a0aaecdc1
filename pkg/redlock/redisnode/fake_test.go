package redisnode_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// fakeServer speaks just enough of the protocol to say what no Redis says when
// one wants it to.
type fakeServer struct {
	listener net.Listener
	reply    func(command []string) string // a reply in RESP; empty closes the connection

	mu   sync.Mutex
	got  [][]string
	open []net.Conn
}

func newFakeServer(reply func(command []string) string) (*fakeServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &fakeServer{listener: listener, reply: reply}
	go f.accept()
	return f, nil
}

func (f *fakeServer) addr() string { return f.listener.Addr().String() }

func (f *fakeServer) close() {
	_ = f.listener.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		_ = c.Close()
	}
}

func (f *fakeServer) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.open = append(f.open, conn)
		f.mu.Unlock()
		go f.serve(conn)
	}
}

func (f *fakeServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	for {
		command, err := readCommand(r)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.got = append(f.got, command)
		f.mu.Unlock()
		reply := f.reply(command)
		if reply == "" {
			return
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

// commands are those with a name that came so far.
func (f *fakeServer) commands(name string) [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found [][]string
	for _, c := range f.got {
		if strings.EqualFold(c[0], name) {
			found = append(found, c)
		}
	}
	return found
}

func readCommand(r *bufio.Reader) ([]string, error) {
	count, err := readLength(r, '*')
	if err != nil {
		return nil, err
	}
	words := make([]string, count)
	for i := range words {
		size, err := readLength(r, '$')
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:size])
	}
	return words, nil
}

func readLength(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q instead of %q", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// answering is a server that greets as one without HELLO and INFO, and gives the
// rest to reply.
func answering(reply func(command []string) string) func([]string) string {
	return func(command []string) string {
		switch strings.ToLower(command[0]) {
		case "hello", "info":
			return "-ERR unknown command\r\n"
		case "script":
			return "$40\r\n" + strings.Repeat("a", 40) + "\r\n"
		}
		return reply(command)
	}
}

// outcome is the answer of the script.
func outcome(n int) string {
	return fmt.Sprintf("*6\r\n:%d\r\n:1\r\n:0\r\n$0\r\n\r\n:0\r\n*3\r\n$2\r\nid\r\n:1\r\n:-1\r\n", n)
}
