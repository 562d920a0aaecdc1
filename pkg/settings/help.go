package settings

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"
)

// WriteHelp lists every flag with what it takes, its default and its environment variable.
func (f *Flags) WriteHelp(w io.Writer) {
	f.set.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Name == versionFlag {
			return
		}
		fmt.Fprintf(w, "  %s--%s %s\n        %s\n", short(flag), flag.Name, kind(flag), flag.Usage)
		if allowed := f.allowed[flag.Name]; allowed != "" && flag.Value.Type() != "bool" {
			fmt.Fprintf(w, "        allowed: %s\n", allowed)
		}
		fmt.Fprintf(w, "        default: %s; environment: %s\n", shown(flag), Variable(flag.Name))
	})
	fmt.Fprintf(w, "  --%s\n        print the version and exit\n  -h, --help\n        print this and exit\n", versionFlag)
	fmt.Fprint(w, "\nA flag wins over its environment variable. An empty variable counts as not set.\n")
}

func short(flag *pflag.Flag) string {
	if flag.Shorthand == "" {
		return ""
	}
	return "-" + flag.Shorthand + ", "
}

func kind(flag *pflag.Flag) string {
	if flag.Value.Type() == "bool" {
		return "[true|false]"
	}
	return flag.Value.Type()
}

func shown(flag *pflag.Flag) string {
	if flag.DefValue == "" {
		return "none"
	}
	return flag.DefValue
}

// Names lists the flags that are not hidden, as they were added.
func (f *Flags) Names() []string {
	var names []string
	f.set.VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(names, flag.Name)
		}
	})
	return names
}
