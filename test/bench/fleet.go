package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"
)

// newFleet runs sidecars, which are told to step down and watched over HTTP.
func newFleet(ctx context.Context, r *rig, servers []*redistest.Server, set settings) (*electorate, error) {
	var members []*sidecartest.Sidecar
	e := &electorate{
		active: make(chan activation, handoverMembers),
		ended:  make(chan time.Duration, handoverMembers),
		stepDown: func(ctx context.Context, i int) error {
			return post(ctx, members[i].Control, "/v1/step-down?for=60s")
		},
		resume: func(ctx context.Context, i int) error { return post(ctx, members[i].Control, "/v1/resume") },
	}
	for i := range handoverMembers {
		s := sidecartest.Program(set.sidecar).Start(r, sidecartest.Options{
			Name: fmt.Sprintf("sidecar-%d", i+1), Lock: "fleet", Redis: redistest.URLs(servers),
			Args: []string{"--ttl=" + set.ttl.String(), "--stop-budget=0s", "--log-level=error"},
		})
		members = append(members, s)
		if err := e.follow(ctx, i, s.Addr); err != nil {
			return nil, err
		}
	}
	_, err := e.next(ctx)
	return e, err
}

// follow notes when a sidecar's stream of changes first says that it is active, and that
// it is no longer.
func (e *electorate) follow(ctx context.Context, member int, addr string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/leadership?watch=true", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	go func() {
		defer resp.Body.Close()
		was := false
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			at := boottime.Now()
			var doc struct{ Active bool }
			_ = json.Unmarshal([]byte(data), &doc) // what is no document says nobody is active
			if doc.Active && !was {
				e.active <- activation{member, at}
			}
			if was && !doc.Active {
				e.ended <- at
			}
			was = doc.Active
		}
	}()
	return nil
}

var errRefused = errors.New("refused")

func post(ctx context.Context, addr, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("POST %s: %w with %s", path, errRefused, resp.Status)
	}
	return nil
}
