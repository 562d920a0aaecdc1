package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// checker looks at the history of a run.
type checker struct {
	log *timeline

	looking sync.Mutex // guards what is noted of each life

	mu         sync.Mutex
	violations []string
	highest    uint64 // the largest token of any term
	terms      int
	wild       bool

	storage     uint64 // the largest token a write was accepted with
	storageTerm string
	written     map[string]bool // terms that storage has moved on from
	refused     int
}

func (c *checker) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := fmt.Sprintf(format, args...)
	c.violations = append(c.violations, v)
	c.log.add("VIOLATION: %s", v)
}

func (c *checker) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.violations) > 0
}

// elected notes a term's token: each must be larger than every one before.
func (c *checker) elected(l *life, token uint64) {
	c.mu.Lock()
	highest, wild := c.highest, c.wild
	c.highest = max(highest, token)
	c.terms++
	c.mu.Unlock()
	if token <= highest && !wild {
		c.fail("%s has token %d after %d", l.name, token, highest)
	}
}

// exclusive checks that at most one candidate is active now, and that no workload acts
// beside it: one that was told to stop has a stop budget to do so. Two candidates that
// overlap do so in the instant in which the later becomes active.
func (c *checker) exclusive(w *world) {
	c.looking.Lock()
	defer c.looking.Unlock()
	var active, acting []string
	for _, l := range w.lives() {
		s := l.Leadership()
		c.revived(l, s.Term)
		budget := l.proc.stopBudget() * 98 / 100
		switch {
		case s.Active():
			active = append(active, l.name)
			l.acted = time.Now()
		case !l.acted.IsZero() && time.Since(l.acted) < budget:
			acting = append(acting, l.name)
		}
	}
	switch {
	case w.set.Wild:
	case len(active) > 1:
		c.fail("active at the same instant: %s", strings.Join(active, " and "))
	case len(active) == 1 && len(acting) > 0:
		c.fail("%s is active while the workload of %s may still be stopping", active[0], strings.Join(acting, " and "))
	}
}

// believed notes that a workload is known to have stopped.
func (c *checker) believed(l *life) {
	c.looking.Lock()
	defer c.looking.Unlock()
	l.acted = time.Time{}
}

// revived checks that a lease that has ended never holds again.
func (c *checker) revived(l *life, term string) {
	if term != l.term {
		if l.term != "" {
			l.terms[l.term] = true
		}
		if l.term = term; l.terms[term] {
			c.fail("the lease of %s came back to life", l.name)
		}
	}
}

// write is a write to storage that compares tokens. Once a later term has written, no
// earlier one may.
func (c *checker) write(name, term string, token uint64) {
	c.mu.Lock()
	if c.written == nil {
		c.written = map[string]bool{}
	}
	if token < c.storage {
		c.refused++
		c.mu.Unlock()
		return
	}
	bad := c.written[term]
	if term != c.storageTerm {
		c.written[c.storageTerm] = true
		c.storage, c.storageTerm = token, term
	}
	c.mu.Unlock()
	if bad && !c.wild {
		c.fail("storage accepted a write of %s with token %d from a term that another one had followed", name, token)
	}
}

// timeline is what happened, for people.
type timeline struct {
	start time.Time
	mu    sync.Mutex
	lines []string
	bytes int
}

// timelineLimit bounds what is kept of a run.
const timelineLimit = 1 << 20

func (t *timeline) add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := fmt.Sprintf("%12.6f  ", time.Since(t.start).Seconds()) + fmt.Sprintf(format, args...)
	if t.bytes += len(line); t.bytes < timelineLimit {
		t.lines = append(t.lines, line)
	}
}

func (t *timeline) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
