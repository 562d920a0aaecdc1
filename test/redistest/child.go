package redistest

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// StartChild starts a command that the kernel kills when this process ends, however
// it ends.
//
// The kernel sends the signal when the *thread* that started the child ends
// (golang/go#27505), so all children are started from one thread that never does.
func StartChild(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	result := make(chan error)
	nursery() <- func() { result <- cmd.Start() }
	return <-result
}

var nursery = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})
