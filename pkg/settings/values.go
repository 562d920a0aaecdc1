package settings

import (
	"errors"
	"slices"
	"strings"
)

// list is the value of a flag that may be repeated.
type list struct {
	values *[]string
	given  bool
}

func (l *list) Set(s string) error {
	if !l.given {
		*l.values, l.given = nil, true
	}
	for part := range strings.SplitSeq(s, ",") {
		*l.values = append(*l.values, strings.TrimSpace(part))
	}
	return nil
}

func (l *list) String() string { return strings.Join(*l.values, ",") }
func (l *list) Type() string   { return "list" }

// texts is the value of a flag that may be repeated, with commas in it.
type texts struct{ values *[]string }

func (t *texts) Set(s string) error {
	*t.values = append(*t.values, s)
	return nil
}

func (t *texts) String() string { return strings.Join(*t.values, " ") }
func (t *texts) Type() string   { return "text" }

// enum is the value of a flag that takes one of a few words.
type enum struct {
	value *string
	words []string
}

var errNotAllowed = errors.New("not one of the allowed words")

func (e *enum) Set(s string) error {
	if !slices.Contains(e.words, s) {
		return errNotAllowed
	}
	*e.value = s
	return nil
}

func (e *enum) String() string { return *e.value }
func (e *enum) Type() string   { return "string" }

// oneOf joins words the way a sentence does.
func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
