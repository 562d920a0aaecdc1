package redisnode

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// The part of RESP2 that a lock needs: commands are arrays of strings, replies are
// strings, numbers, errors and arrays of them. go-redis makes the connection; from
// then on who sends a request writes it himself, and one goroutine hears the answers,
// which saves each request two changes of goroutine.
// See https://redis.io/docs/latest/develop/reference/protocol-spec/.

// replyError is an error that the server sent. It is a redis.Error.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks what the server said, as against what became of the connection.
func (replyError) RedisError() {}

// Bounds on what a server may answer. Nothing that the script answers comes near them,
// unless somebody has put a huge value into the lock's key.
const (
	longestString = 16 << 20
	longestArray  = 64
	deepestArray  = 2
)

var errProtocol = errors.New("the server does not speak the Redis protocol")

func appendArray(b []byte, size int) []byte { return appendHead(b, '*', int64(size)) }

func appendHead(b []byte, kind byte, n int64) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, n, 10)
	return append(b, '\r', '\n')
}

func appendString(b []byte, s string) []byte {
	b = appendHead(b, '$', int64(len(s)))
	b = append(b, s...)
	return append(b, '\r', '\n')
}

func appendInt(b []byte, n int64) []byte {
	var digits [20]byte
	return appendString(b, string(strconv.AppendInt(digits[:0], n, 10)))
}

func appendFlag(b []byte, set bool) []byte {
	if set {
		return appendString(b, "1")
	}
	return appendString(b, "0")
}

// readReply reads one reply: a string, an int64, nil, or a []any of them. An error
// that the server sent is a replyError; after any other error the connection is of no
// use.
func readReply(r *bufio.Reader) (any, error) { return readNested(r, deepestArray) }

func readNested(r *bufio.Reader, depth int) (any, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	switch rest := line[1:]; line[0] {
	case '+':
		return string(rest), nil
	case '-':
		return nil, replyError(rest)
	case ':':
		return readNumber(rest)
	case '$':
		return readString(r, rest)
	case '*':
		return readArray(r, rest, depth)
	}
	return nil, fmt.Errorf("%w: a reply begins with %q", errProtocol, line[:1])
}

// readLine reads up to the end of a line, which is not empty and is good until the
// next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("%w: a line is longer than %d bytes", errProtocol, len(line))
	case err != nil:
		return nil, err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return nil, fmt.Errorf("%w: a line is %q", errProtocol, line)
	}
	return line[:len(line)-2], nil
}

func readNumber(digits []byte) (int64, error) {
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is not a number", errProtocol, digits)
	}
	return n, nil
}

// readSize reads the size of a string or an array; -1 stands for nil.
func readSize(digits []byte, most int64) (int64, error) {
	n, err := readNumber(digits)
	if err == nil && (n < -1 || n > most) {
		return 0, fmt.Errorf("%w: a size is %d, at most %d is expected", errProtocol, n, most)
	}
	return n, err
}

func readString(r *bufio.Reader, digits []byte) (any, error) {
	size, err := readSize(digits, longestString)
	if err != nil || size < 0 {
		return nil, err
	}
	b := make([]byte, size+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	return string(b[:size]), nil
}

func readArray(r *bufio.Reader, digits []byte, depth int) (any, error) {
	size, err := readSize(digits, longestArray)
	if err != nil || size < 0 {
		return nil, err
	}
	if depth == 0 {
		return nil, fmt.Errorf("%w: arrays in arrays", errProtocol)
	}
	list := make([]any, size)
	for i := range list {
		v, err := readNested(r, depth-1)
		if said, ok := errors.AsType[replyError](err); ok {
			v, err = said, nil
		}
		if err != nil {
			return nil, err
		}
		list[i] = v
	}
	return list, nil
}
