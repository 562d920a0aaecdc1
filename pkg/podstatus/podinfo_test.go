package podstatus

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

func TestDownwardFormat(t *testing.T) {
	for name, tc := range map[string]struct {
		raw  string
		want map[string]string
		bad  bool
	}{
		"empty":       {raw: "", want: map[string]string{}},
		"some":        {raw: "a=\"1\"\nb/c=\"2\"\n", want: map[string]string{"a": "1", "b/c": "2"}},
		"no new line": {raw: `a="1"`, want: map[string]string{"a": "1"}},
		"escapes":     {raw: fmt.Sprintf("a=%q\n", "x=\"y\"\nz\t\u00e9\\"), want: map[string]string{"a": "x=\"y\"\nz\t\u00e9\\"}},
		"unquoted":    {raw: "a=1\n", bad: true},
		"half":        {raw: "a=\"1", bad: true},
		"no value":    {raw: "a\n", bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseDownward([]byte(tc.raw))
			if (err != nil) != tc.bad || !maps.Equal(got, tc.want) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// kubelet writes a downward-API volume as the kubelet does: a new folder, and a link
// that is moved to it.
type kubelet struct {
	dir string
	n   int
}

func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{dir: t.TempDir()}
	for _, name := range []string{"annotations", "labels"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(k.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

func (k *kubelet) write(t *testing.T, annotations, labels string) {
	t.Helper()
	k.n++
	name := fmt.Sprintf("..%d", k.n)
	for _, err := range []error{
		os.Mkdir(filepath.Join(k.dir, name), 0o700),
		os.WriteFile(filepath.Join(k.dir, name, "annotations"), []byte(annotations), 0o600),
		os.WriteFile(filepath.Join(k.dir, name, "labels"), []byte(labels), 0o600),
		os.Symlink(name, filepath.Join(k.dir, "..new")),
		os.Rename(filepath.Join(k.dir, "..new"), filepath.Join(k.dir, "..data")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hearing is what a Watch told.
type hearing struct {
	mu   sync.Mutex
	told []Podinfo
}

func (h *hearing) hear(p Podinfo) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, p)
}

func (h *hearing) all() []Podinfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.told)
}

func TestWatchTellsOfEachChange(t *testing.T) {
	k := newKubelet(t)
	synctest.Test(t, func(t *testing.T) {
		var heard hearing
		w := &Watch{Dir: k.dir, Log: logr.Discard(), OnChange: heard.hear}
		if err := w.Read(); err == nil {
			t.Error("read files that are not there")
		}
		go w.Run(t.Context())
		time.Sleep(time.Second)
		synctest.Wait()
		if told := heard.all(); len(told) != 0 {
			t.Errorf("told %v", told)
		}
		for i := range 3 {
			k.write(t, fmt.Sprintf("podlease.io/step-down=\"%d\"\n", i), "podlease.io/role=\"standby\"\n")
			time.Sleep(lookEvery)
			synctest.Wait()
			if told := heard.all(); len(told) != i+1 || told[i].Annotations[stepDownKey] != fmt.Sprint(i) || told[i].Labels[DefaultRoleLabel] != "standby" {
				t.Fatalf("after change %d: told %v", i, told)
			}
		}
		time.Sleep(repeatEvery - lookEvery)
		synctest.Wait()
		if told := heard.all(); len(told) != 3 {
			t.Errorf("told %d times without a change", len(told)-3)
		}
		time.Sleep(2 * lookEvery)
		synctest.Wait()
		if told := heard.all(); len(told) != 4 {
			t.Errorf("told %d times, want a reminder", len(told))
		}
	})
}

func TestWatchSeesFilesWrittenInPlace(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("annotations", "")
	write("labels", "")
	synctest.Test(t, func(t *testing.T) {
		var heard hearing
		w := &Watch{Dir: dir, Log: logr.Discard(), OnChange: heard.hear}
		if err := w.Read(); err != nil {
			t.Fatal(err)
		}
		go w.Run(t.Context())
		write("labels", "podlease.io/role=\"active\"\n")
		time.Sleep(lookEvery)
		synctest.Wait()
		if told := heard.all(); told[len(told)-1].Labels[DefaultRoleLabel] != "active" {
			t.Errorf("told %v", told)
		}
	})
}
