// Package probe does what a probe of the kubelet does, from inside the container.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// userAgent begins as the kubelet's does: apps tell probes from users by it.
const userAgent = "kube-probe/podlease"

// Target is what is probed.
type Target struct {
	url     *url.URL
	headers []header
}

// header is one header of an HTTP request.
type header struct{ name, value string }

// ErrTarget is wrapped for a target that cannot be probed.
var ErrTarget = errors.New("want http:// or https:// with a host, tcp://host:port, or grpc://host:port with a /service if you like")

// ErrHeader is wrapped for a header that is none.
var ErrHeader = errors.New(`want "Name: value", for http:// and https:// only`)

// Parse reads a target and the headers, each "Name: value", for HTTP.
func Parse(target string, headers []string) (Target, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.User != nil {
		return Target{}, fmt.Errorf("%q: %w", target, ErrTarget)
	}
	t := Target{url: u}
	switch u.Scheme {
	case "http", "https":
		t.headers, err = parseHeaders(headers)
		return t, err
	case "tcp", "grpc":
		if !hostPort(u) || (u.Scheme == "tcp" && u.Path != "") {
			return Target{}, fmt.Errorf("%q: %w", target, ErrTarget)
		}
		if len(headers) > 0 {
			return Target{}, fmt.Errorf("%q: %w", headers[0], ErrHeader)
		}
		return t, nil
	}
	return Target{}, fmt.Errorf("%q: %w", target, ErrTarget)
}

func hostPort(u *url.URL) bool {
	return u.Hostname() != "" && u.Port() != "" && u.RawQuery == "" && u.Fragment == ""
}

func parseHeaders(given []string) ([]header, error) {
	var out []header
	for _, h := range given {
		name, value, found := strings.Cut(h, ":")
		if !found || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("%q: %w", h, ErrHeader)
		}
		out = append(out, header{strings.TrimSpace(name), strings.TrimSpace(value)})
	}
	return out, nil
}

// Check probes the target once; nil is success.
func (t Target) Check(ctx context.Context) error {
	switch t.url.Scheme {
	case "tcp":
		return checkTCP(ctx, t.url.Host)
	case "grpc":
		return checkGRPC(ctx, t.url.Host, strings.TrimPrefix(t.url.Path, "/"))
	}
	return t.checkHTTP(ctx)
}

// checkTCP is content with a connection.
func checkTCP(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
