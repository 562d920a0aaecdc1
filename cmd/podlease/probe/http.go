package probe

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
)

const (
	// maxRedirects is what the kubelet follows.
	maxRedirects = 10
	// maxBody is how much of an answer is read, so that the app does not see a broken
	// pipe.
	maxBody = 10 << 10
	// maxTold is how much of a bad answer is told.
	maxTold = 200
)

// checkHTTP succeeds with any status from 200 to 399. Certificates are not verified, and
// redirects to another host not followed, as by the kubelet.
func (t Target) checkHTTP(ctx context.Context) error {
	req, err := t.request(ctx)
	if err != nil {
		return err
	}
	transport := &http.Transport{ // no proxy: the app is beside us
		//nolint:gosec // the kubelet does not verify the certificates of apps either
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives:  true,
		DisableCompression: true,
		ForceAttemptHTTP2:  true,
	}
	client := &http.Client{Transport: transport, CheckRedirect: checkRedirect}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", t.url, err)
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s answered %s: %.*q", t.url, resp.Status, maxTold, body)
	}
	return nil
}

// request has the headers a kubelet would send. An empty Accept or User-Agent leaves that
// header out.
func (t Target) request(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	for _, h := range t.headers {
		if http.CanonicalHeaderKey(h.name) == "Host" {
			req.Host = h.value
			continue
		}
		req.Header.Add(h.name, h.value)
	}
	for name, value := range map[string]string{"Accept": "*/*", "User-Agent": userAgent} {
		switch given, ok := req.Header[name]; {
		case !ok:
			req.Header.Set(name, value)
		case name == "Accept" && given[0] == "":
			req.Header.Del(name)
		}
	}
	return req, nil
}

// checkRedirect takes a redirect to another host for an answer of its own, 3xx and so
// good.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	return nil
}
