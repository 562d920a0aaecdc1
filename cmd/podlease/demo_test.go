package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// happening is one line of the account, or one answer, that says who is active.
type happening struct {
	name  string
	token uint64
}

// heard collects what the endpoints answered.
type heard struct {
	mu   sync.Mutex
	all  map[happening]bool
	news chan struct{} // closed when there is more
}

func (h *heard) add(e happening) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[e] = true
	close(h.news)
	h.news = make(chan struct{})
}

// await waits until an endpoint has answered that.
func (h *heard) await(e happening) bool {
	patience := time.After(30 * time.Second)
	for {
		h.mu.Lock()
		has, news := h.all[e], h.news
		h.mu.Unlock()
		if has {
			return true
		}
		select {
		case <-news:
		case <-patience:
			return false
		}
	}
}

func (h *heard) has(e happening) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[e]
}

var (
	endpoint = regexp.MustCompile(`^(candidate-\d) +(http://\S+)/v1/leadership$`)
	active   = regexp.MustCompile(`^[\d:.]{12}  (candidate-\d) +active +token (\d+)  \((\S+) `)
	stream   = &http.Client{}
)

// listen follows one candidate's stream of changes for as long as ctx lasts. A
// crashed candidate ends the stream.
func (h *heard) listen(ctx context.Context, url string) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?watch=true", http.NoBody)
		if err != nil {
			return
		}
		resp, err := stream.Do(req)
		if err != nil {
			continue
		}
		h.read(resp.Body)
		resp.Body.Close()
	}
}

func (h *heard) read(body io.Reader) {
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var doc struct {
			Identity     string
			Active       bool
			FencingToken uint64
		}
		if ok && json.Unmarshal([]byte(data), &doc) == nil && doc.Active {
			h.add(happening{doc.Identity, doc.FencingToken})
		}
	}
}

// stepsDown asks a candidate to hand over, and reports whether it does.
func stepsDown(t *testing.T, url string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/step-down?for=1s", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Do(req)
	if err != nil {
		t.Fatalf("step-down: %v", err)
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusAccepted
}

func TestDemoEventsAreInTheAnswersOfItsEndpoints(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var listeners sync.WaitGroup
	defer listeners.Wait()
	defer cancel()
	out, in := io.Pipe()
	var stderr strings.Builder
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"demo", "--once", "--ttl=1s", "--interval=1s"}, nil, in, &stderr)
		in.Close()
	}()

	answers := &heard{all: map[happening]bool{}, news: make(chan struct{})}
	urls := map[string]string{}
	example, asked := "", false // of a step-down; whether one was asked for
	var told []happening
	var causes []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		t.Log(lines.Text())
		if m := endpoint.FindStringSubmatch(lines.Text()); m != nil {
			urls[m[1]] = m[2]
			listeners.Go(func() { answers.listen(ctx, m[2]+"/v1/leadership") })
		}
		if strings.Contains(lines.Text(), "/v1/step-down") {
			example = lines.Text()
		}
		if m := active.FindStringSubmatch(lines.Text()); m != nil {
			token, err := strconv.ParseUint(m[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			told, causes = append(told, happening{m[1], token}), append(causes, strings.Trim(m[3], ","))
			// As a visitor does. It is in vain where the lease was lost in the meantime.
			asked = asked || answers.await(told[len(told)-1]) && stepsDown(t, urls[m[1]])
		}
	}
	for name, url := range urls {
		if !strings.Contains(example, strings.TrimPrefix(url, "http://")) {
			t.Errorf("the example of a step-down is %q: want that it reaches %s too, should that be active", example, name)
		}
	}
	if got := <-code; got != 0 {
		t.Fatalf("exit code %d: %s", got, stderr.String())
	}
	// On a busy machine the lease may run out in between, which is told as a take-over.
	causes = slices.DeleteFunc(causes, func(c string) bool { return c == "take-over" })
	if got, want := strings.Join(causes, " "), "election hand-over hand-over fail-over"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	for i, e := range told {
		if !answers.has(e) {
			t.Errorf("told that %s is active with token %d, but no endpoint answered that", e.name, e.token)
		}
		if i > 0 && (e.token <= told[i-1].token || e.name == told[i-1].name) {
			t.Errorf("%+v came after %+v: want another candidate and a larger token", e, told[i-1])
		}
	}
}

func TestDemoEndsInOrderWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	var stderr strings.Builder
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"demo"}, nil, in, &stderr)
		in.Close()
	}()
	last := ""
	for lines := bufio.NewScanner(out); lines.Scan(); last = lines.Text() {
		if active.MatchString(lines.Text()) {
			cancel() // what Ctrl-C does
		}
		if strings.Contains(lines.Text(), "\x1b") {
			t.Errorf("colour in what is no terminal: %q", lines.Text())
		}
	}
	select {
	case got := <-code:
		if got != 0 {
			t.Errorf("exit code %d: %s", got, stderr.String())
		}
	case <-time.After(time.Minute):
		t.Fatal("the demo did not end")
	}
	if want := "The demo ends: whoever holds the lock releases it."; last != want {
		t.Errorf("last line %q, want %q", last, want)
	}
}
