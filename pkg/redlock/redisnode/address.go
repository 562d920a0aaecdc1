package redisnode

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Address is where a node is.
type Address struct {
	Network  string // "tcp" or "unix"
	Endpoint string // host:port, or the path of a socket
	TLS      bool
	User     string // empty: none given
	DB       int
}

const allowedAddresses = "host:port, redis://[user@]host:port[/db], rediss://[user@]host:port[/db] or unix:///path"

// ParseAddress reads host:port, redis://[user@]host:port[/db], rediss://… or
// unix:///path. Passwords are refused, since an address is shown to people.
func ParseAddress(s string) (Address, error) {
	scheme, _, isURL := strings.Cut(s, "://")
	if !isURL {
		return hostPort(s, s)
	}
	u, err := url.Parse(s)
	if err != nil {
		return Address{}, badAddress(scheme+"://…", "not a URL")
	}
	shown := u.Redacted()
	if _, has := u.User.Password(); has {
		return Address{}, badAddress(shown, "a password does not belong into an address; give it in a file")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return Address{}, badAddress(shown, "parameters are not allowed")
	}
	switch u.Scheme {
	case "redis", "rediss":
		return tcpURL(u, shown)
	case "unix":
		return unixURL(u, shown)
	}
	return Address{}, badAddress(shown, "unknown scheme "+strconv.Quote(u.Scheme))
}

func tcpURL(u *url.URL, shown string) (Address, error) {
	a, err := hostPort(u.Host, shown)
	if err != nil {
		return Address{}, err
	}
	a.TLS = u.Scheme == "rediss"
	a.User = u.User.Username()
	if path := strings.TrimPrefix(u.Path, "/"); path != "" {
		a.DB, err = strconv.Atoi(path)
		if err != nil || a.DB < 0 {
			return Address{}, badAddress(shown, "the database is not a number from 0")
		}
	}
	return a, nil
}

func unixURL(u *url.URL, shown string) (Address, error) {
	if u.Host != "" || len(u.Path) < 2 {
		return Address{}, badAddress(shown, "a socket needs an absolute path after unix://")
	}
	return Address{Network: "unix", Endpoint: u.Path, User: u.User.Username()}, nil
}

func hostPort(s, shown string) (Address, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || strings.ContainsAny(host, "/@ \t") {
		return Address{}, badAddress(shown, "no host and port")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return Address{}, badAddress(shown, "the port is not a number from 1 to 65535")
	}
	return Address{Network: "tcp", Endpoint: s}, nil
}

func badAddress(shown, why string) error {
	return fmt.Errorf("redis address %q: %s (allowed: %s)", shown, why, allowedAddresses)
}

// String is the address as a person writes it, without the user.
func (a Address) String() string {
	switch {
	case a.Network == "unix":
		return "unix://" + a.Endpoint
	case !a.TLS && a.DB == 0:
		return a.Endpoint
	}
	s := "redis://"
	if a.TLS {
		s = "rediss://"
	}
	s += a.Endpoint
	if a.DB != 0 {
		s += "/" + strconv.Itoa(a.DB)
	}
	return s
}

// host is the name that a certificate has to carry.
func (a Address) host() string {
	host, _, err := net.SplitHostPort(a.Endpoint)
	if err != nil {
		return ""
	}
	return host
}
