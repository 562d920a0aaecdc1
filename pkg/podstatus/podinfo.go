package podstatus

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

const (
	// lookEvery is how often the files are looked at. Polling costs a stat of two
	// files and works on every kind of volume.
	lookEvery = 200 * time.Millisecond
	// repeatEvery is how often an unchanged Podinfo is told again: two changes within
	// the kubelet's time to write look like none.
	repeatEvery = 10 * time.Second
)

// Podinfo is the Pod's metadata as the API server has it, or had a little earlier.
type Podinfo struct {
	Annotations, Labels map[string]string
}

// Watch tells of the downward-API files annotations and labels in a folder.
type Watch struct {
	Dir string
	Log logr.Logger
	// OnChange is called by Read, and by Run with each change and, from time to time,
	// without one. Never by two goroutines at once.
	OnChange func(Podinfo)

	seen     [2]fs.FileInfo
	toldAt   time.Time
	troubled bool
}

// Read tells what is in the files now. Do it before the candidate runs, so that one
// that is paused does not contend.
func (w *Watch) Read() error {
	seen, err := w.look()
	if err != nil {
		return err
	}
	annotations, err := readDownward(filepath.Join(w.Dir, "annotations"))
	if err != nil {
		return err
	}
	labels, err := readDownward(filepath.Join(w.Dir, "labels"))
	if err != nil {
		return err
	}
	w.seen, w.toldAt = seen, time.Now()
	w.OnChange(Podinfo{Annotations: annotations, Labels: labels})
	return nil
}

// Run follows the files until ctx ends. Files that cannot be read are tried again.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.report(w.refresh())
	}
}

func (w *Watch) refresh() error {
	seen, err := w.look()
	if err != nil {
		return err
	}
	if same(seen[0], w.seen[0]) && same(seen[1], w.seen[1]) && time.Since(w.toldAt) < repeatEvery {
		return nil
	}
	return w.Read()
}

// report logs the first of a row of errors.
func (w *Watch) report(err error) {
	if err != nil && !w.troubled {
		w.Log.Error(err, "downward API files cannot be read, live settings and changes of the role label go unseen", "dir", w.Dir)
	}
	w.troubled = err != nil
}

func (w *Watch) look() (seen [2]fs.FileInfo, err error) {
	for i, name := range []string{"annotations", "labels"} {
		if seen[i], err = os.Stat(filepath.Join(w.Dir, name)); err != nil {
			return seen, fmt.Errorf("podinfo: %w", err)
		}
	}
	return seen, nil
}

// same reports whether a file was not written since. The kubelet writes new files
// and moves a link to them.
func same(a, b fs.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func readDownward(path string) (map[string]string, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // the user names the folder
	if err != nil {
		return nil, fmt.Errorf("podinfo: %w", err)
	}
	values, err := parseDownward(raw)
	if err != nil {
		return nil, fmt.Errorf("podinfo file %s: %w", path, err)
	}
	return values, nil
}

// parseDownward reads lines of key="value", the value quoted as by Go's %q.
func parseDownward(raw []byte) (map[string]string, error) {
	values := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, len(raw)+1)
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		key, quoted, found := strings.Cut(lines.Text(), "=")
		value, err := strconv.Unquote(quoted)
		if !found || err != nil {
			return nil, fmt.Errorf("line %.80q: want key=\"value\"", lines.Text())
		}
		values[key] = value
	}
	return values, lines.Err()
}
