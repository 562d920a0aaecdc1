package redlock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tokenVersion is the format that this release writes. A reader accepts any
// version it knows, so that releases exclude each other.
const tokenVersion = "1"

// secretBytes of randomness begin every token: 128 bits, so that no two attempts
// ever share one.
const secretBytes = 16

// TokenInfo is what a token says of whoever wrote it.
type TokenInfo struct {
	Identity string
	TTL      time.Duration
	Nodes    int    // how many nodes its owner counts
	ListHash string // of its owner's list of nodes
}

// newToken makes a token: secret:version:ttl in ms:nodes:hash of the list:identity.
// The secret comes first, so that tokens differ in their first bytes.
func newToken(entropy io.Reader, suffix string) (string, error) {
	var secret [secretBytes]byte
	if _, err := io.ReadFull(entropy, secret[:]); err != nil {
		return "", fmt.Errorf("read random bytes for a lease token: %w", err)
	}
	b := make([]byte, 0, 2*secretBytes+len(suffix))
	return string(append(hex.AppendEncode(b, secret[:]), suffix...)), nil
}

// suffix is the part of a token that does not change between attempts.
func (i TokenInfo) suffix() string {
	return ":" + strings.Join([]string{
		tokenVersion, strconv.FormatInt(i.TTL.Milliseconds(), 10), strconv.Itoa(i.Nodes), i.ListHash, i.Identity,
	}, ":")
}

// ParseToken reads the value of a lease's key. It reports false for a value that
// this package did not write, such as another Redlock client's.
func ParseToken(value string) (TokenInfo, bool) {
	f := strings.SplitN(value, ":", 6)
	if len(f) != 6 || len(f[0]) != 2*secretBytes || f[1] != tokenVersion {
		return TokenInfo{}, false
	}
	ttl, err1 := strconv.ParseInt(f[2], 10, 64)
	n, err2 := strconv.Atoi(f[3])
	if err1 != nil || err2 != nil || ttl <= 0 || n <= 0 {
		return TokenInfo{}, false
	}
	return TokenInfo{Identity: f[5], TTL: time.Duration(ttl) * time.Millisecond, Nodes: n, ListHash: f[4]}, true
}

// ownerName is what to call the owner of a key's value.
func ownerName(value string) string {
	if info, ok := ParseToken(value); ok {
		return info.Identity
	}
	return "another Redlock client"
}

// termOf derives a public name for the term from the secret token: whoever knows
// the token could release the lease, so the token itself is not shown.
func termOf(token string) string {
	sum := sha256.Sum256([]byte("term:" + token))
	return hex.EncodeToString(sum[:16])
}

// listHash identifies a list of nodes whatever its order.
func listHash(names []string) string {
	sorted := slices.Sorted(slices.Values(names))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\n")))
	return hex.EncodeToString(sum[:4])
}
