package settings_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/podlease/podlease/pkg/settings"
)

func logged(t *testing.T, args ...string) string {
	t.Helper()
	l, f := settings.Logging{}, settings.NewFlags("test")
	l.AddFlags(f)
	if err := f.Parse(args, nil); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := l.Logger(&out)
	log.V(1).Info("details", "n", 1)
	log.Info("started", "lock", "orders")
	log.Error(errors.New("refused"), "not published")
	return out.String()
}

func TestLogLevels(t *testing.T) {
	for level, want := range map[string]int{"debug": 3, "info": 2, "error": 1} {
		if got := strings.Count(logged(t, "--log-level="+level), "\n"); got != want {
			t.Errorf("%s: %d lines, want %d", level, got, want)
		}
	}
}

func TestLogFormats(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(logged(t, "--log-level=debug")), "\n")
	for i, want := range []string{"debug", "info", "error"} {
		var line struct{ Level, Msg, Time string }
		if err := json.Unmarshal([]byte(lines[i]), &line); err != nil || line.Level != want || line.Time == "" {
			t.Errorf("%s: level %q, want %q (%v)", lines[i], line.Level, want, err)
		}
	}
	if text := logged(t, "--log-format=text"); !strings.Contains(text, "level=info msg=started lock=orders\n") {
		t.Errorf("text %q", text)
	}
}
