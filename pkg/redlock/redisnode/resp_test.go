package redisnode

import (
	"bufio"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestReadReply(t *testing.T) {
	for given, want := range map[string]any{
		"+OK\r\n":                  "OK",
		":-12\r\n":                 int64(-12),
		"$5\r\na\r\nb\n\r\n":       "a\r\nb\n",
		"$0\r\n\r\n":               "",
		"$-1\r\n":                  nil,
		"*-1\r\n":                  nil,
		"*0\r\n":                   []any{},
		"*2\r\n:1\r\n$1\r\nx\r\n":  []any{int64(1), "x"},
		"*2\r\n*1\r\n:1\r\n:2\r\n": []any{[]any{int64(1)}, int64(2)},
		"*1\r\n-ERR no\r\n":        []any{replyError("ERR no")},
	} {
		r := bufio.NewReader(strings.NewReader(given + "+next\r\n"))
		got, err := readReply(r)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %#v, %v, want %#v", given, got, err, want)
		}
		if next, err := readReply(r); next != "next" {
			t.Errorf("%q: after it came %#v, %v", given, next, err)
		}
	}
}

func TestReadReplyTellsWhatIsWrong(t *testing.T) {
	for given, why := range map[string]string{
		"-WRONGPASS invalid\r\n":        "WRONGPASS invalid",
		"?1\r\n":                        `begins with "?"`,
		"HTTP/1.1 400 Bad Request\r\n":  `begins with "H"`,
		":1x\r\n":                       "not a number",
		"$-2\r\n":                       "a size is -2",
		"$99999999999\r\n":              "a size is 99999999999",
		"*65\r\n":                       "a size is 65",
		"*1\r\n*1\r\n*1\r\n:1\r\n":      "arrays in arrays",
		"\r\n":                          "a line is",
		"+OK\n":                         "a line is",
		"+" + strings.Repeat("x", 5000): "a line is longer",
		"":                              "EOF",
		"$5\r\nab":                      "EOF",
		"*2\r\n:1\r\n":                  "EOF",
	} {
		v, err := readReply(bufio.NewReader(strings.NewReader(given)))
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %#v, %v, want an error with %q", given, v, err, why)
		}
		if said := strings.HasPrefix(given, "-"); isReply(err) != said {
			t.Errorf("%q: %v counts as a reply: %v", given, err, !said)
		}
	}
}

func FuzzReadReply(f *testing.F) {
	for _, s := range []string{"*2\r\n:1\r\n$1\r\nx\r\n", "-ERR\r\n", "$-1\r\n", "*1\r\n*0\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, given string) {
		r := bufio.NewReader(strings.NewReader(given))
		for {
			_, err := readReply(r)
			if err == nil || isReply(err) {
				continue
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errProtocol) {
				t.Fatalf("%q: %v", given, err)
			}
			return
		}
	})
}

func TestAppendCommand(t *testing.T) {
	b := appendFlag(appendInt(appendString(appendArray(nil, 3), "a b\r\n"), -7), true)
	if want := "*3\r\n$5\r\na b\r\n\r\n$2\r\n-7\r\n$1\r\n1\r\n"; string(b) != want {
		t.Fatalf("got %q, want %q", b, want)
	}
}
