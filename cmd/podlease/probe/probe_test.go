package probe_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/podlease/podlease/cmd/podlease/probe"
)

// check probes once, with time enough for a busy machine.
func check(t *testing.T, target string, headers ...string) error {
	t.Helper()
	parsed, err := probe.Parse(target, headers)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return parsed.Check(ctx)
}

// refusing is an address at which nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestHTTPSucceedsAsTheKubeletsDoes(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer elsewhere.Close()
	_, otherPort, _ := net.SplitHostPort(elsewhere.Listener.Addr().String())
	handler := http.NewServeMux()
	for path, status := range map[string]int{"/199": 199, "/200": 200, "/204": 204, "/302": 302, "/399": 399, "/400": 400, "/404": 404, "/500": 500} {
		handler.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	handler.Handle("/here", http.RedirectHandler("/200", http.StatusFound))
	handler.Handle("/bad", http.RedirectHandler("/500", http.StatusFound))
	handler.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	handler.Handle("/away", http.RedirectHandler("http://localhost:"+otherPort+"/", http.StatusFound))
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	for path, good := range map[string]bool{
		"/200": true, "/204": true, "/399": true, "/400": false, "/404": false, "/500": false,
		"/302": true, "/here": true, "/bad": false, "/loop": false, "/away": true,
	} {
		for _, server := range []string{plain.URL, secure.URL} {
			if err := check(t, server+path); (err == nil) != good {
				t.Errorf("%s: %v, want success %v", server+path, err, good)
			}
		}
	}
	if err := check(t, "http://"+refusing(t)); err == nil {
		t.Error("nobody listens, and the probe succeeds")
	}
}

func TestHTTPSendsTheProbesHeaders(t *testing.T) {
	got := make(chan *http.Request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }))
	defer server.Close()
	if err := check(t, server.URL+"/a?b=c", "Host: shop", "X-Many: 1, 2", "X-Many:3"); err != nil {
		t.Fatal(err)
	}
	r := <-got
	if r.Host != "shop" || strings.Join(r.Header["X-Many"], "|") != "1, 2|3" || r.URL.RequestURI() != "/a?b=c" {
		t.Errorf("host %q, headers %v, %s", r.Host, r.Header, r.URL)
	}
	if !strings.HasPrefix(r.UserAgent(), "kube-probe/") || r.Header.Get("Accept") != "*/*" {
		t.Errorf("headers %v: want those of a kubelet", r.Header)
	}
	if err := check(t, server.URL, "User-Agent: mine", "Accept:"); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.UserAgent() != "mine" || r.Header.Get("Accept") != "" {
		t.Errorf("headers %v", r.Header)
	}
}

func TestTCPSucceedsWithAConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := check(t, "tcp://"+l.Addr().String()); err != nil {
		t.Error(err)
	}
	if err := check(t, "tcp://"+refusing(t)); err == nil {
		t.Error("nobody listens, and the probe succeeds")
	}
}

// answer is what a gRPC health service says.
type answer struct {
	body   []byte
	code   string
	status int
}

func frame(message ...byte) []byte {
	out := make([]byte, 5, 5+len(message))
	binary.BigEndian.PutUint32(out[1:], uint32(len(message)))
	return append(out, message...)
}

// health serves one answer over HTTP/2 without TLS, and keeps what it was asked.
func health(t *testing.T, a answer) (address string, asked <-chan []byte) {
	t.Helper()
	requests := make(chan []byte, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- append([]byte(r.URL.Path+" "+r.Header.Get("Content-Type")+" "), body...)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body)
		w.Header().Set("Grpc-Status", a.code)
	}))
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), requests
}

// The same against the gRPC library's own service is in test/interop.
func TestGRPCSucceedsWhenTheServiceIsServing(t *testing.T) {
	for name, tc := range map[string]struct {
		answer
		good bool
	}{
		"serving":         {answer{frame(0x08, 1), "0", 200}, true},
		"not serving":     {answer{frame(0x08, 2), "0", 200}, false},
		"unknown":         {answer{frame(), "0", 200}, false},
		"no such service": {answer{nil, "5", 200}, false},
		"no code":         {answer{frame(0x08, 1), "", 200}, false},
		"cut off":         {answer{frame(0x08, 1)[:6], "0", 200}, false},
		"nonsense":        {answer{frame(0xff, 0xff), "0", 200}, false},
		"compressed":      {answer{append([]byte{1}, frame(0x08, 1)[1:]...), "0", 200}, false},
		"no gRPC":         {answer{frame(0x08, 1), "0", 404}, false},
	} {
		t.Run(name, func(t *testing.T) {
			address, asked := health(t, tc.answer)
			if err := check(t, "grpc://"+address+"/db"); (err == nil) != tc.good {
				t.Errorf("%v, want success %v", err, tc.good)
			}
			want := "/grpc.health.v1.Health/Check application/grpc \x00\x00\x00\x00\x04\x0a\x02db"
			if got := string(<-asked); got != want {
				t.Errorf("asked %q, want %q", got, want)
			}
		})
	}
	if err := check(t, "grpc://"+refusing(t)); err == nil {
		t.Error("nobody listens, and the probe succeeds")
	}
}

func TestAProbeEndsInTime(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() // the kernel takes connections, and nobody answers
	for _, scheme := range []string{"http", "https", "grpc"} {
		parsed, err := probe.Parse(scheme+"://"+silent.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := parsed.Check(ctx); err == nil || ctx.Err() == nil {
			t.Errorf("%s: %v, %v: want the end of the time", scheme, err, ctx.Err())
		}
		cancel()
	}
}

func TestWhatCannotBeProbed(t *testing.T) {
	for _, target := range []string{"", "shop", "127.0.0.1:80", "ftp://a:1", "tcp://a", "tcp://a:1/x", "grpc://a", "grpc://:1", "http://", "http://me@a", "tcp://a:1?x", "http://a:b"} {
		if _, err := probe.Parse(target, nil); !errors.Is(err, probe.ErrTarget) {
			t.Errorf("%q: %v", target, err)
		}
	}
	for target, header := range map[string]string{"http://a": "Host", "https://a": ": x", "tcp://a:1": "Host: x", "grpc://a:1": "Host: x"} {
		if _, err := probe.Parse(target, []string{header}); !errors.Is(err, probe.ErrHeader) {
			t.Errorf("%s with header %q: %v", target, header, err)
		}
	}
}
