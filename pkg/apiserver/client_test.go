package apiserver

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/transport"
)

// serve starts an API server that takes one token.
func serve(t *testing.T, handler http.HandlerFunc) (url, caFile string) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	caFile = filepath.Join(t.TempDir(), "ca.crt")
	write(t, caFile, string(ca))
	return s.URL, caFile
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

var get = Request{Method: http.MethodGet, Path: []string{"api", "v1", "namespaces", "a"}}

func TestRotatedTokenIsReadAgainAfterRefusal(t *testing.T) {
	var valid atomic.Value
	valid.Store("Bearer old")
	url, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != valid.Load() {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, "old")
	c, err := New(url, &transport.Config{BearerTokenFile: token, TLS: transport.TLSConfig{CAFile: ca}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(t.Context(), get, nil); err != nil {
		t.Fatal(err)
	}
	valid.Store("Bearer new")
	write(t, token, "new")
	if err := c.Do(t.Context(), get, nil); Refused(err) == nil || Refused(err).Code != http.StatusUnauthorized {
		t.Fatalf("with the old token: %v", err)
	}
	if err := c.Do(t.Context(), get, nil); err != nil {
		t.Errorf("with the new token: %v", err)
	}
}

func TestRefusalIsRead(t *testing.T) {
	url, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"kind":"Status","reason":"TooManyRequests","message":"busy","details":{"causes":[{"field":"a.b"}]}}`))
	})
	c, err := New(url, &transport.Config{TLS: transport.TLSConfig{CAFile: ca}})
	if err != nil {
		t.Fatal(err)
	}
	r := Refused(fmt.Errorf("wrapped: %w", c.Do(t.Context(), get, nil)))
	if r == nil || r.Code != 429 || r.Reason != "TooManyRequests" || r.RetryAfter != 3*time.Second || r.Fields[0] != "a.b" {
		t.Fatalf("%+v", r)
	}
	if want := "the API server answered 429 Too Many Requests: busy"; r.Error() != want {
		t.Errorf("%q, want %q", r, want)
	}
}

// A kept connection into a network that was cut costs the next request its time.
func TestGivenUpRequestDoesNotKeepItsConnection(t *testing.T) {
	remotes := make(chan string, 2)
	url, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if remotes <- r.RemoteAddr; len(remotes) == 1 {
			<-r.Context().Done()
		}
	})
	c, err := New(url, &transport.Config{TLS: transport.TLSConfig{CAFile: ca}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Do(ctx, get, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if err := c.Do(t.Context(), get, nil); err != nil {
		t.Fatal(err)
	}
	if a, b := <-remotes, <-remotes; a == b {
		t.Errorf("both came from %s", a)
	}
}

func TestBeforeSendStopsTheBody(t *testing.T) {
	url, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&struct{}{}); err == nil {
			t.Error("the server got the body")
		}
	})
	c, err := New(url, &transport.Config{TLS: transport.TLSConfig{CAFile: ca}})
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	r := Request{Method: http.MethodPatch, Path: get.Path, ContentType: JSON, Body: map[string]int{"a": 1}, BeforeSend: func() error { return stop }}
	if err := c.Do(t.Context(), r, nil); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	url, ca = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&struct{}{}); err != nil {
			t.Errorf("body: %v", err)
		}
	})
	if c, err = New(url, &transport.Config{TLS: transport.TLSConfig{CAFile: ca}}); err != nil {
		t.Fatal(err)
	}
	r.BeforeSend = func() error { return nil }
	if err := c.Do(t.Context(), r, nil); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

func TestKubeconfig(t *testing.T) {
	url, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	write(t, filepath.Join(filepath.Dir(ca), "token"), "secret")
	for name, tc := range map[string]struct{ context, cluster, user, problem string }{
		"token":        {"c", "certificate-authority: ca.crt", "token: secret", ""},
		"token file":   {"c", "certificate-authority: " + ca, "tokenFile: token", ""},
		"insecure":     {"c", "insecure-skip-tls-verify: true", "token: secret", ""},
		"unknown":      {"d", "certificate-authority: ca.crt", "token: secret", `current-context "d"`},
		"plugin":       {"c", "certificate-authority: ca.crt", "exec: {command: aws}", "plugin"},
		"no CA":        {"c", "certificate-authority: absent", "token: secret", "absent"},
		"bad base64":   {"c", "certificate-authority-data: '%%'", "token: secret", "base64"},
		"not a token":  {"c", "certificate-authority: ca.crt", "token: other", "401"},
		"no user":      {"c", "certificate-authority: ca.crt", "{}", "401"},
		"wrong server": {"c", "certificate-authority: ca.crt, server: 'ftp://x'", "token: secret", "ftp://x"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(filepath.Dir(ca), "config of "+name)
			server := ", server: '" + url + "'"
			if strings.Contains(tc.cluster, "server") {
				server = ""
			}
			write(t, path, fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: %s\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {%s%s}}]\nusers: [{name: u, user: {%s}}]\n",
				tc.context, tc.cluster, server, strings.Trim(tc.user, "{}")+map[bool]string{true: "}", false: ""}[strings.HasPrefix(tc.user, "exec")]))
			c, err := FromKubeconfig(path)
			if err == nil {
				err = c.Do(t.Context(), get, nil)
			}
			if (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
				t.Errorf("got %v, want a problem with %q", err, tc.problem)
			}
		})
	}
}

func TestOutsideAPodSaysSo(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := InCluster(); err == nil || !strings.Contains(err.Error(), "not in a Pod") {
		t.Error(err)
	}
}
