// Package apiserver speaks to the Kubernetes API server with the transport of
// client-go's REST client (certificates and bearer tokens re-read from their files)
// and plain requests. A sidecar that sends a few small objects needs no serializers
// and no discovery: leaving rest.RESTClient out saves 3 MB of binary and of memory in
// every Pod.
package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/client-go/transport"
)

// maxAnswer bounds what is read of an answer, in bytes: etcd holds no larger objects.
const maxAnswer = 3 << 20

// Content types of request bodies.
const (
	JSON                = "application/json"
	StrategicMergePatch = "application/strategic-merge-patch+json"
	MergePatch          = "application/merge-patch+json"
)

// MetadataOnly is the Accept header for an answer with the object's metadata and
// nothing else.
const MetadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// userAgent is what the API server's audit log shows.
const userAgent = "podlease"

// Client sends requests to one API server. It is safe for concurrent use.
type Client struct {
	base *url.URL
	http *http.Client
}

// New makes a client for the API server at host, an URL, and takes cfg over. A cfg without a transport of
// its own speaks HTTP/1.1: there a request that was given up takes its connection
// with it, whereas an HTTP/2 connection into a cut network would be kept, and waited
// for, until its health check notices after 45 s.
func New(host string, cfg *transport.Config) (*Client, error) {
	base, err := url.Parse(host)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("API server address %q: want http://host:port or https://host:port", host)
	}
	if cfg.Transport == nil {
		cfg.TLS.NextProtos = []string{"http/1.1"}
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = userAgent
	}
	if cfg.BearerTokenFile != "" {
		// Read again each minute, and after a refusal: client-go's own BearerTokenFile
		// leaves out the latter, so an expired token would be kept for up to a minute.
		token := transport.NewCachedFileTokenSource(cfg.BearerTokenFile)
		cfg.Wrap(transport.ResettableTokenSourceWrapTransport(token))
		cfg.BearerTokenFile = ""
	}
	rt, err := transport.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("connection to the API server at %s: %w", host, err)
	}
	return &Client{base: base, http: &http.Client{Transport: rt}}, nil
}

// Request is one call of the API.
type Request struct {
	Method string
	// Path is the path's elements, from "api" or "apis" on; they are escaped.
	Path  []string
	Query url.Values
	// ContentType of Body, and Accept when the answer should not be the whole object.
	ContentType, Accept string
	// Body is sent as JSON; nil for none.
	Body any
	// BeforeSend, if not nil, is asked when the connection stands and the body is
	// about to leave; its error gives the request up.
	BeforeSend func() error
}

// Do sends the request and decodes the answer into out unless that is nil. A
// refusal is a *StatusError; any other error means that no answer came, so that the
// request may or may not have been carried out.
func (c *Client) Do(ctx context.Context, r Request, out any) error {
	req, err := c.request(ctx, r)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("no answer from the API server: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("no complete answer from the API server: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return refusal(resp, body)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("answer of the API server to %s %s: %w", r.Method, req.URL.Path, err)
	}
	return nil
}

func (c *Client) request(ctx context.Context, r Request) (*http.Request, error) {
	u := *c.base
	for _, e := range r.Path {
		u = *u.JoinPath(url.PathEscape(e))
	}
	u.RawQuery = r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("request to the API server: %w", err)
	}
	// Requests are rare. An idle connection per Pod would cost the API server memory,
	// and one that a firewall forgot would cost us the first try.
	req.Close = true
	req.Header.Set("Accept", r.Accept)
	if r.Accept == "" {
		req.Header.Set("Accept", JSON)
	}
	if r.Body == nil {
		return req, nil
	}
	body, err := json.Marshal(r.Body)
	if err != nil {
		return nil, fmt.Errorf("body of %s %s: %w", r.Method, u.Path, err)
	}
	req.Header.Set("Content-Type", r.ContentType)
	req.Body = io.NopCloser(&checkedBody{body: bytes.NewReader(body), check: r.BeforeSend})
	req.ContentLength = int64(len(body))
	return req, nil
}

// checkedBody asks check before the first byte is read.
type checkedBody struct {
	body  io.Reader
	check func() error
}

func (b *checkedBody) Read(p []byte) (int, error) {
	if b.check != nil {
		if err := b.check(); err != nil {
			return 0, err
		}
		b.check = nil
	}
	return b.body.Read(p)
}

// StatusError is the API server's refusal.
type StatusError struct {
	Code    int    // the HTTP status
	Reason  string // such as NotFound; empty when whoever answered is no API server
	Message string
	// Fields are the paths of the fields that were refused, if any were.
	Fields []string
	// RetryAfter is how long the API server asks to be left alone, or 0.
	RetryAfter time.Duration
}

func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the API server answered %d %s", e.Code, http.StatusText(e.Code))
	}
	return fmt.Sprintf("the API server answered %d %s: %s", e.Code, http.StatusText(e.Code), e.Message)
}

// Refused returns the refusal in err, or nil when there is none.
func Refused(err error) *StatusError {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s
	}
	return nil
}

func refusal(resp *http.Response, body []byte) error {
	e := &StatusError{Code: resp.StatusCode, RetryAfter: retryAfter(resp)}
	var status struct {
		Kind, Reason, Message string
		Details               struct{ Causes []struct{ Field string } }
	}
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" {
		return e
	}
	e.Reason, e.Message = status.Reason, status.Message
	for _, c := range status.Details.Causes {
		e.Fields = append(e.Fields, c.Field)
	}
	return e
}

// retryAfter reads the header; the API server sends seconds, never a date.
func retryAfter(resp *http.Response) time.Duration {
	s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(s) * time.Second
}
