package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/podlease/podlease/pkg/settings"
	"github.com/podlease/podlease/pkg/statusapi"
)

// verbs are the subcommands, each with what it asks the sidecar for.
var verbs = []struct{ name, about string }{
	{"drain", "Stops being active, keeps the lease and does not contend: for a preStop hook."},
	{"step-down", "Stops being active, gives the lease up in order and does not contend for a while."},
	{"pause", "Takes no part until resume; a held lease is given up in order."},
	{"resume", "Ends pause, drain and a step-down's wait."},
	{"stopped", "Says that the workload has stopped acting, so that a hand-over need not wait."},
}

func isVerb(word string) bool { return slices.Contains(verbNames(), word) }

func verbNames() []string {
	names := make([]string, 0, len(verbs))
	for _, v := range verbs {
		names = append(names, v.name)
	}
	return names
}

// request is one thing that the running sidecar is asked for.
type request struct {
	verb    string
	address string
	timeout time.Duration
	pause   time.Duration
}

const timeoutAllowed = "a duration above 0s and at most 10m, such as 5s"

func newRequest(verb string) (*request, *settings.Flags) {
	r, f := &request{verb: verb}, settings.NewFlags(program+" "+verb)
	f.String(&r.address, defaultControlListen, controlListenFlag)
	f.Duration(&r.timeout, 5*time.Second, settings.Flag{Name: "timeout", Usage: "how long to wait for the sidecar's answer", Allowed: timeoutAllowed})
	if verb == "step-down" {
		f.Duration(&r.pause, statusapi.DefaultPause, settings.Flag{Name: "for", Usage: "how long not to contend", Allowed: "a duration from 0s to 24h, such as 30s"})
	}
	return r, f
}

// askSidecar runs a subcommand: the image has no shell and no curl for an exec hook.
func askSidecar(ctx context.Context, verb string, args, env []string, stdout io.Writer) error {
	r, f := newRequest(verb)
	err := r.parse(f, args, env)
	switch {
	case errors.Is(err, settings.ErrHelp):
		writeVerbHelp(stdout, verb, f)
		return nil
	case errors.Is(err, settings.ErrVersion):
		return writeVersion(stdout)
	case err != nil:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	doc, err := r.send(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	_, err = fmt.Fprintln(stdout, describe(doc))
	return err
}

func (r *request) parse(f *settings.Flags, args, env []string) error {
	if err := f.Parse(args, env); err != nil {
		return err
	}
	if err := checkControlListen(f, r.address); err != nil {
		return err
	}
	if r.timeout <= 0 || r.timeout > 10*time.Minute {
		return f.Reject("timeout", r.timeout.String(), timeoutAllowed)
	}
	if _, err := statusapi.ParsePause(r.pause.String()); err != nil {
		return f.Reject("for", r.pause.String(), err.Error())
	}
	return nil
}

func writeVerbHelp(w io.Writer, verb string, f *settings.Flags) {
	for _, v := range verbs {
		if v.name == verb {
			fmt.Fprintf(w, "Usage: %s %s [flags]\n\n%s\n\nFlags:\n", program, verb, v.about)
		}
	}
	f.WriteHelp(w)
}

// send asks the sidecar and returns what it says of its state.
func (r *request) send(ctx context.Context) (statusapi.Document, error) {
	target := url.URL{Scheme: "http", Host: r.address, Path: "/v1/" + r.verb}
	if r.verb == "step-down" {
		target.RawQuery = url.Values{"for": {r.pause.String()}}.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), http.NoBody)
	if err != nil {
		return statusapi.Document{}, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	resp, err := client.Do(req)
	if err != nil {
		return statusapi.Document{}, fmt.Errorf("no answer from the sidecar at %s: %w; does it run, and with this --control-listen?", r.address, cause(err))
	}
	defer resp.Body.Close()
	return readAnswer(resp)
}

// cause leaves out the method and the URL, which the message has already.
func cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// maxAnswer is more than any leadership document has.
const maxAnswer = 64 << 10

func readAnswer(resp *http.Response) (statusapi.Document, error) {
	body := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode == http.StatusAccepted {
		var doc statusapi.Document
		err := body.Decode(&doc)
		return doc, err
	}
	var problem struct{ Error string }
	if err := body.Decode(&problem); err != nil || problem.Error == "" {
		return statusapi.Document{}, fmt.Errorf("the sidecar answered %s", resp.Status)
	}
	if resp.StatusCode == http.StatusConflict {
		return statusapi.Document{}, fmt.Errorf("refused: %s", problem.Error)
	}
	return statusapi.Document{}, fmt.Errorf("the sidecar answered %s: %s", resp.Status, problem.Error)
}

// describe says in one line how the sidecar stands.
func describe(d statusapi.Document) string {
	line := fmt.Sprintf("lock %s: %s is %s", d.Lock, d.Identity, d.Role)
	if d.Reason != "" {
		line += ", " + d.Reason
	}
	return oneLine(line)
}
