// Command pause is the first process of each Pod in the test cluster: it holds the
// Pod's namespaces and reaps what is left behind.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end, child := make(chan os.Signal, 1), make(chan os.Signal, 8)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	signal.Notify(child, syscall.SIGCHLD)
	for {
		select {
		case <-end:
			os.Exit(0)
		case <-child:
			for {
				if p, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); p <= 0 {
					break
				}
			}
		}
	}
}
