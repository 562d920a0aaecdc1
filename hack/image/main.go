// Command image packs one static program into a docker archive without Docker: what
// the Dockerfile makes, for machines that cannot run it. The same input gives the
// same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var s spec
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", "", "the program, linked statically; the image has it in its root under the same name")
	flags.StringVar(&s.name, "name", "", "the image's name with its tag")
	flags.StringVar(&s.arch, "arch", "amd64", "the program's architecture as Go names it")
	flags.StringVar(&s.version, "version", "dev", "for the label org.opencontainers.image.version")
	out := flags.String("out", "", "the archive to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if s.binary == "" || s.name == "" || *out == "" {
		return errors.New("--binary, --name and --out are required")
	}
	created, err := created(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	s.created = created
	if err := os.MkdirAll(filepath.Dir(*out), 0o750); err != nil {
		return fmt.Errorf("make the folder of %s: %w", *out, err)
	}
	return s.write(*out)
}

// created turns SOURCE_DATE_EPOCH into the image's date; the epoch itself when it is
// not set, so that the date never makes a difference nobody asked for.
func created(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH %q: want seconds since 1970", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
