package redlock

import "sync"

// tasks counts what goes on in the background. Unlike a sync.WaitGroup it may be added
// to while somebody waits: a reply that comes late may start a release.
type tasks struct {
	mu   sync.Mutex
	open int
	idle chan struct{} // closed when nothing is open any more; nil unless waited for
}

func (t *tasks) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
}

func (t *tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open--; t.open == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait returns once nothing is open.
func (t *tasks) wait() {
	t.mu.Lock()
	if t.open == 0 {
		t.mu.Unlock()
		return
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	<-idle
}
