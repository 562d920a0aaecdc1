package statusapi_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/statusapi"
)

// serving serves c on loopback; end ends the server and returns its error.
func serving(t *testing.T, c *candidate) (url string, end func() error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- statusapi.Serve(ctx, ln, statusapi.NewHandler(c, nil)) }()
	end = func() error { cancel(); return <-ended }
	return "http://" + ln.Addr().String(), end
}

// read asks for url and returns the body that comes.
func read(t *testing.T, url string) *bufio.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return bufio.NewReader(resp.Body)
}

func TestServerEndsStreamsAndWaitingRequests(t *testing.T) {
	url, end := serving(t, newCandidate(standbyLeadership("held by shop/b")))
	stream := read(t, url+"/v1/leadership?watch=true")
	if line, err := stream.ReadString('\n'); line != "event: leadership\n" {
		t.Fatalf("first line %q, %v", line, err)
	}
	waited := make(chan int, 1)
	go func() {
		resp, err := http.Get(url + "/v1/leadership?wait=active&timeout=10m")
		if err != nil {
			waited <- 0
			return
		}
		resp.Body.Close()
		waited <- resp.StatusCode
	}()
	if err := end(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if _, err := io.ReadAll(stream); err != nil {
		t.Errorf("the stream did not end in order: %v", err)
	}
	if status := <-waited; status == http.StatusOK {
		t.Error("a waiting request was told that it had come true")
	}
}

func TestServerReportsAListenerThatBreaks(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	err = statusapi.Serve(t.Context(), ln, http.NotFoundHandler())
	if err == nil || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("error %v does not name the address", err)
	}
}

// pipes is a listener of connections in memory, whose deadlines are in virtual time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// ask sends a request on a connection of its own.
func (p *pipes) ask(t *testing.T, target string) *bufio.Reader {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close() })
	p.conns <- server
	if _, err := io.WriteString(client, "GET "+target+" HTTP/1.1\r\nHost: pod\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(client)
}

// inMemory runs during beside a server of is in virtual time.
func inMemory(t *testing.T, is election.Leadership, during func(t *testing.T, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- statusapi.Serve(ctx, p, statusapi.NewHandler(newCandidate(is), nil)) }()
		during(t, p)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
}

func TestStreamOutlivesTheTimeOtherAnswersGet(t *testing.T) {
	inMemory(t, standbyLeadership("held by shop/b"), func(t *testing.T, p *pipes) {
		stream := p.ask(t, "/v1/leadership?watch=true")
		start := time.Now()
		for time.Since(start) < 10*time.Minute {
			if _, err := stream.ReadString('\n'); err != nil {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
		}
	})
}

func TestLongWaitIsAnswered(t *testing.T) {
	inMemory(t, standbyLeadership("held by shop/b"), func(t *testing.T, p *pipes) {
		answer := p.ask(t, "/v1/leadership?wait=active&timeout=5m")
		line, err := answer.ReadString('\n')
		if err != nil || !strings.Contains(line, "504") {
			t.Fatalf("after 5 minutes: %q, %v", line, err)
		}
	})
}

func TestClientThatDoesNotReadIsLeft(t *testing.T) {
	inMemory(t, standbyLeadership("held by shop/b"), func(t *testing.T, p *pipes) {
		stream := p.ask(t, "/v1/leadership?watch=true")
		time.Sleep(time.Minute) // in which nothing is read: a pipe has no buffer
		if text, _ := io.ReadAll(stream); strings.Count(string(text), ":") > 20 {
			t.Errorf("the stream went on: %q", text)
		}
	})
}

func TestSlowHeaderIsGivenUp(t *testing.T) {
	inMemory(t, activeLeadership(), func(t *testing.T, p *pipes) {
		client, server := net.Pipe()
		p.conns <- server
		start := time.Now()
		_, err := client.Read(make([]byte, 1))
		if waited := time.Since(start); err == nil || waited > 10*time.Second {
			t.Errorf("a client that sends nothing was waited for %v (%v)", waited, err)
		}
		client.Close()
	})
}
