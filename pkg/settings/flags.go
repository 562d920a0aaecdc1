// Package settings reads what a person tells a program: flags, the environment
// variables that stand for them, and the checks that several programs share.
//
// A flag --some-name can be given as PODLEASE_SOME_NAME; the flag wins. An empty
// variable counts as not given, and variables that stand for no flag are ignored,
// because the kubelet makes some for every Service (PODLEASE_PORT and the like).
package settings

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// EnvPrefix begins the name of every environment variable that stands for a flag.
const EnvPrefix = "PODLEASE_"

var (
	// ErrHelp is returned by Parse for --help.
	ErrHelp = errors.New("help asked for")
	// ErrVersion is returned by Parse for --version.
	ErrVersion = errors.New("version asked for")
)

// Flag describes one flag to people.
type Flag struct {
	Name string
	// Short is a letter that stands for the name, or empty.
	Short string
	// Usage is what it does, as half a sentence.
	Usage string
	// Allowed completes "want …" in the message about a wrong value.
	Allowed string
	// Default is shown instead of the value's own default where that one is worked
	// out later.
	Default string
	// Hidden flags are not listed.
	Hidden bool
}

// Flags is a set of flags that can be given through the environment as well.
type Flags struct {
	program string
	set     *pflag.FlagSet
	allowed map[string]string
	env     map[string]string
	fromEnv map[string]bool
	version bool
	args    *[]string // nil where no arguments are allowed
}

// NewFlags makes an empty set for a program or one of its commands.
func NewFlags(program string) *Flags {
	f := &Flags{
		program: program,
		set:     pflag.NewFlagSet(program, pflag.ContinueOnError),
		allowed: map[string]string{},
		env:     map[string]string{},
		fromEnv: map[string]bool{},
	}
	f.set.SortFlags = false
	f.set.Usage = func() {}
	f.set.BoolVar(&f.version, versionFlag, false, "print the version and exit")
	return f
}

// versionFlag has no variable: people set PODLEASE_VERSION for purposes of their own.
const versionFlag = "version"

// String adds a flag with a text.
func (f *Flags) String(p *string, def string, flag Flag) {
	f.set.StringVarP(p, flag.Name, flag.Short, def, flag.Usage)
	f.describe(flag)
}

// Duration adds a flag with a duration.
func (f *Flags) Duration(p *time.Duration, def time.Duration, flag Flag) {
	f.set.DurationVar(p, flag.Name, def, flag.Usage)
	f.describe(flag)
}

// Int adds a flag with a whole number.
func (f *Flags) Int(p *int, def int, flag Flag) {
	f.set.IntVar(p, flag.Name, def, flag.Usage)
	f.describe(flag)
}

// Bool adds a switch.
func (f *Flags) Bool(p *bool, def bool, flag Flag) {
	flag.Allowed = "true or false"
	f.set.BoolVarP(p, flag.Name, flag.Short, def, flag.Usage)
	f.describe(flag)
}

// List adds a flag whose values are separated by commas or given by repeating it.
func (f *Flags) List(p *[]string, flag Flag) {
	f.set.Var(&list{values: p}, flag.Name, flag.Usage)
	f.describe(flag)
}

// Texts adds a flag that may be repeated, each time with one text as it is.
func (f *Flags) Texts(p *[]string, flag Flag) {
	f.set.Var(&texts{values: p}, flag.Name, flag.Usage)
	f.describe(flag)
}

// Arguments allows arguments that are no flags, and returns where Parse leaves them.
func (f *Flags) Arguments() *[]string {
	if f.args == nil {
		f.args = &[]string{}
	}
	return f.args
}

// Dash tells how many arguments came before a "--"; -1 without one.
func (f *Flags) Dash() int { return f.set.ArgsLenAtDash() }

// Enum adds a flag that takes one of a few words.
func (f *Flags) Enum(p *string, def string, words []string, flag Flag) {
	*p = def
	flag.Allowed = oneOf(words)
	f.set.VarP(&enum{value: p, words: words}, flag.Name, flag.Short, flag.Usage)
	f.describe(flag)
}

func (f *Flags) describe(flag Flag) {
	f.allowed[flag.Name] = flag.Allowed
	registered := f.set.Lookup(flag.Name)
	registered.Hidden = flag.Hidden
	if flag.Default != "" {
		registered.DefValue = flag.Default
	}
}

// Variable is the environment variable that stands for a flag.
func Variable(name string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Parse reads args, and from env (NAME=value) what they leave out. Its errors are
// ErrHelp, ErrVersion, or an *Error of one line.
func (f *Flags) Parse(args, env []string) error {
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		f.env[name] = value
	}
	if err := f.set.Parse(args); err != nil {
		return f.explain(err)
	}
	if f.version {
		return ErrVersion
	}
	switch {
	case f.args != nil:
		*f.args = f.set.Args()
	case f.set.NArg() > 0:
		return &Error{Text: fmt.Sprintf("unexpected argument %q: want flags only, --help lists them", f.set.Arg(0))}
	}
	return f.parseEnv()
}

func (f *Flags) parseEnv() error {
	var first error
	f.set.VisitAll(func(flag *pflag.Flag) {
		value := f.env[Variable(flag.Name)]
		if value == "" || flag.Changed || flag.Name == versionFlag || first != nil {
			return
		}
		f.fromEnv[flag.Name] = true
		if err := f.set.Set(flag.Name, value); err != nil {
			first = f.Reject(flag.Name, value, f.allowed[flag.Name])
		}
	})
	return first
}

// Given reports whether a flag was given, on the command line or through the
// environment.
func (f *Flags) Given(name string) bool { return f.set.Changed(name) }

// Env returns a variable of the environment that Parse was given.
func (f *Flags) Env(name string) string { return f.env[name] }

// explain turns an error of pflag into ours.
func (f *Flags) explain(err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return ErrHelp
	case errors.As(err, &invalid):
		name := invalid.GetFlag().Name
		return f.Reject(name, invalid.GetValue(), f.allowed[name])
	case errors.As(err, &missing):
		name := missing.GetFlag().Name
		return &Error{Flag: name, Text: fmt.Sprintf("--%s has no value: want %s", name, f.allowed[name])}
	case errors.As(err, &unknown):
		return unknownFlag(unknown)
	}
	return &Error{Text: fmt.Sprintf("%q: want flags such as --name=value, --help lists them", err.Error())}
}

func unknownFlag(err *pflag.NotExistError) error {
	name := "--" + err.GetSpecifiedName()
	if short := err.GetSpecifiedShortnames(); short != "" {
		name = "-" + short
	}
	return &Error{Text: fmt.Sprintf("unknown flag %q: --help lists those there are", name)}
}
