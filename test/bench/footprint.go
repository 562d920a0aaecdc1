package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/podlease/podlease/test/child"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"
)

const footprintTime = 20 * time.Second

// clockTick is the unit of CPU time in /proc, USER_HZ, which is 100 on Linux.
const clockTick = 10 * time.Millisecond

// measureFootprint runs a holder and a standby of each kind as processes of their
// own, and reads their memory and CPU time.
func measureFootprint(ctx context.Context, set settings, rep *report) error {
	return withRig(func(r *rig) error {
		servers := r.servers(3)
		processes := []*process{}
		for _, who := range []string{"holder", "standby"} {
			ours, err := startSidecar(r, set, servers, who)
			if err != nil {
				return err
			}
			theirs, err := startLoop(r, set, servers, who)
			if err != nil {
				return err
			}
			processes = append(processes, ours, theirs)
			sleep(ctx, time.Second) // the first one takes the lock
		}
		sleep(ctx, 2*time.Second)
		for _, p := range processes {
			p.before = cpuTime(r, p.pid)
		}
		sleep(ctx, footprintTime)
		for _, p := range processes {
			p.addTo(r, rep)
		}
		return ctx.Err()
	})
}

// process is one that is watched.
type process struct {
	library, who string
	pid          int
	before       time.Duration
}

func startSidecar(r *rig, set settings, servers []*redistest.Server, who string) (*process, error) {
	s := sidecartest.Program(set.sidecar).Start(r, sidecartest.Options{
		Name: who, Lock: "footprint", Redis: redistest.URLs(servers), Args: []string{"--ttl=" + set.ttl.String()},
	})
	return &process{library: ourName, who: who, pid: s.PID()}, nil
}

func startLoop(r *rig, set settings, servers []*redistest.Server, who string) (*process, error) {
	p, err := child.Start(exec.Command(set.loop, "footprint-redsync", set.ttl.String(), strings.Join(redistest.URLs(servers), ",")))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w; make bench builds it", set.loop, err)
	}
	r.Cleanup(func() { _ = p.Kill() })
	return &process{library: "redsync fail-fast", who: who, pid: p.PID()}, nil
}

func (p *process) addTo(r *rig, rep *report) {
	used := cpuTime(r, p.pid) - p.before
	memory := residentMB(r, p.pid)
	line := result{Library: p.library, Nodes: 3, State: p.who, Count: 1}
	line.Measure, line.Unit = "memory", "MB resident"
	line.P50, line.P99, line.Max = memory, memory, memory
	rep.add(line)
	percent := 100 * float64(used) / float64(footprintTime)
	line.Measure, line.Unit = "cpu", "% of a core"
	line.P50, line.P99, line.Max = percent, percent, percent
	rep.add(line)
	if p.library == ourName {
		rep.aim("sidecar's resident memory in MB, "+p.who, memory, 16)
	}
}

// cpuTime is what a process has used so far, in user and kernel mode.
func cpuTime(r *rig, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		r.Fatalf("read the CPU time of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	user, _ := strconv.Atoi(fields[11]) // utime and stime are fields 14 and 15 of proc(5)
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * clockTick
}

// residentMB is a process's resident memory.
func residentMB(r *rig, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		r.Fatalf("read the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kb) / 1024
		}
	}
	r.Fatalf("process %d has no VmRSS: has it ended?", pid)
	return 0
}
