package annotations

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	minTTL        = 500 * time.Millisecond
	maxLockLength = 200
	// longest keeps the arithmetic far from overflow; no lease is that long.
	longest = 24 * time.Hour
)

var lockCharacters = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)

func oneOf(values ...string) func(string) error {
	return func(v string) error {
		if slices.Contains(values, v) {
			return nil
		}
		return fmt.Errorf("must be one of %s", quoted(values))
	}
}

func quoted(values []string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strconv.Quote(v)
	}
	return strings.Join(out, ", ")
}

func durationFrom(least time.Duration) func(string) error {
	return func(v string) error {
		d, err := time.ParseDuration(v)
		switch {
		case err != nil:
			return fmt.Errorf("must be a duration such as 10s or 500ms")
		case d < least && least == 1:
			return fmt.Errorf("must be a duration above zero")
		case d > longest:
			return fmt.Errorf("must be a duration of at most 24h")
		case d < least:
			return fmt.Errorf("must be a duration of at least %v", least)
		}
		return nil
	}
}

func checkTTL(v string) error {
	if err := durationFrom(minTTL)(v); err != nil {
		return err
	}
	if d, _ := time.ParseDuration(v); d%time.Millisecond != 0 {
		return fmt.Errorf("must be a duration in whole milliseconds")
	}
	return nil
}

func intFrom(least, most int) func(string) error {
	return func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < least || n > most {
			return fmt.Errorf("must be a whole number from %d to %d", least, most)
		}
		return nil
	}
}

func quantityFrom(least string) func(string) error {
	lower := resource.MustParse(least)
	return func(v string) error {
		q, err := resource.ParseQuantity(v)
		if err != nil || q.Cmp(lower) < 0 {
			return fmt.Errorf("must be a quantity of at least %s", least)
		}
		return nil
	}
}

func checkLock(v string) error {
	switch {
	case v == "" || len(v) > maxLockLength || !lockCharacters.MatchString(v),
		strings.Contains(v, "//"), strings.HasPrefix(v, "/"), strings.HasSuffix(v, "/"):
		return fmt.Errorf("must be 1 to %d of A-Z a-z 0-9 . _ / -, without //, a leading or a trailing /", maxLockLength)
	}
	return nil
}

func checkName(v string) error {
	if len(validation.IsDNS1123Label(v)) > 0 {
		return fmt.Errorf("must be a name of lower-case letters, digits and -, at most 63")
	}
	return nil
}

func checkWait(v string) error {
	if v == WaitForever || durationFrom(0)(v) == nil {
		return nil
	}
	return fmt.Errorf("must be %q or a duration such as 30s, 0s too", WaitForever)
}

func checkAppHealth(v string) error {
	if v == Auto || v == Off || isLoopbackURL(v) {
		return nil
	}
	return fmt.Errorf("must be %q, %q, or an http://, https:// or tcp:// address on loopback with a port, such as http://127.0.0.1:8080/healthz", Auto, Off)
}

func isLoopbackURL(v string) bool {
	u, err := url.Parse(v)
	if err != nil || u.Port() == "" || !slices.Contains([]string{"http", "https", "tcp"}, u.Scheme) {
		return false
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
}
