package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/podlease/podlease/pkg/settings"
)

func installCommand() command {
	return command{
		name:      "install",
		summary:   "copy this program to a path, as an init container does",
		arguments: "PATH",
		about: "Copies the running program to PATH, which may be there already and in use: another container\n" +
			"of the Pod can then run it from a volume that both mount.",
		prepare: func(flags *settings.Flags) action {
			arguments := flags.Arguments()
			return func(_ context.Context, _ call) error {
				if len(*arguments) != 1 || (*arguments)[0] == "" {
					return &settings.Error{Text: fmt.Sprintf("install: %d arguments: want one, the path to copy this program to", len(*arguments))}
				}
				return install((*arguments)[0])
			}
		},
	}
}

// installedMode lets everybody run it, whatever user the app's container has.
const installedMode = 0o555

// install copies the running program. The copy appears at once and whole: it is written
// under another name and moved.
func install(path string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the running program: %w", err)
	}
	source, err := os.Open(self) //nolint:gosec // the program itself
	if err != nil {
		return fmt.Errorf("read the running program: %w", err)
	}
	defer source.Close()
	copied, err := copyBeside(path, source)
	if err != nil {
		return fmt.Errorf("install to %q: %w", path, err)
	}
	if err := os.Rename(copied, path); err != nil {
		_ = os.Remove(copied)
		return fmt.Errorf("install to %q: %w", path, err)
	}
	return nil
}

// copyBeside writes a program into a new file in the folder of path, and returns its name.
func copyBeside(path string, source io.Reader) (name string, err error) {
	target, err := os.CreateTemp(filepath.Dir(path), ".podlease-")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(target, source)
	if err == nil {
		err = target.Chmod(installedMode)
	}
	if closed := target.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(target.Name())
		return "", err
	}
	return target.Name(), nil
}
