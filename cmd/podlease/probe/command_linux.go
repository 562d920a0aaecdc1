package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// outputDelay is how long is waited for the output of a command that has ended: what it
// started in a group of its own may go on to hold the pipe.
const outputDelay = 100 * time.Millisecond

// RunCommand runs a probe's command to its end, and returns its exit code. At the end of
// ctx the command is killed with its process group.
func RunCommand(ctx context.Context, argv, env []string, stdout, stderr io.Writer) (code int, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // the command is what the user asks for
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, stdout, stderr, outputDelay
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	if ctx.Err() != nil {
		return 0, fmt.Errorf("%s was killed: %w", argv[0], ctx.Err())
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}
