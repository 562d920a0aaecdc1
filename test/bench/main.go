// Command bench measures podlease beside redsync on real Redis servers, both in the
// same run and in turns, so that noise of the machine hits both.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// settings are what a person can change about a run.
type settings struct {
	rounds  int
	ttl     time.Duration
	json    string
	sidecar string
	loop    string
}

// measure is one part of the benchmark. It adds its results to the report.
type measure struct {
	name  string
	about string
	run   func(ctx context.Context, set settings, rep *report) error
}

func measures() []measure {
	return []measure{
		{"latency", "acquire and renew on 3 and 5 nodes, healthy and with one frozen", measureLatency},
		{"frozen", "acquire and renew with each of three nodes frozen in turn, against healthy", measureFrozen},
		{"handover", "from the holder's step-down to the next holder", measureHandover},
		{"commands", "commands per node and TTL of a holder and of a standby", measureCommands},
		{"footprint", "memory and CPU of a holder and of a standby process", measureFootprint},
	}
}

// reproductions are faults of peers that their users met, each beside podlease.
func reproductions() []measure {
	return []measure{
		{"orphans", "keys that redsync's fail-fast leaves behind on a jittery network", reproduceOrphans},
		{"slow-renew", "redsync's renewal with a frozen node", reproduceSlowRenew},
		{"two-holders", "rueidislock's two holders when the first is cut off", reproduceTwoHolders},
		{"late-takeover", "rueidislock's take-over on a node with 200 000 volatile keys", reproduceLateTakeover},
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	set, chosen, err := parse(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 2
	}
	redis.SetLogger(silence{}) // it tells of the connections that a frozen node cost
	rep := newReport(stdout)
	rep.prologue(set)
	for _, m := range chosen {
		if err := rep.section(ctx, m, set); err != nil {
			fmt.Fprintf(stderr, "bench: %s: %v\n", m.name, err)
			return 1
		}
	}
	if err := rep.save(set.json); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

// silence is a logger of go-redis.
type silence struct{}

// Printf says nothing.
func (silence) Printf(context.Context, string, ...any) {}

func parse(args []string, stdout io.Writer) (settings, []measure, error) {
	var set settings
	fs := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	fs.SetOutput(stdout)
	fs.SortFlags = false
	fs.IntVar(&set.rounds, "rounds", 300, "rounds of each latency")
	fs.DurationVar(&set.ttl, "ttl", 10*time.Second, "how long leases last")
	fs.StringVar(&set.json, "json", "", "write the results to this file as well")
	fs.StringVar(&set.sidecar, "sidecar", "bin/podlease-sidecar", "the sidecar's program, for handover and footprint")
	fs.StringVar(&set.loop, "redsync-loop", "bin/redsyncloop", "the program that holds a redsync lock, for footprint")
	fs.Usage = func() { usage(stdout, fs) }
	if err := fs.Parse(args); err != nil {
		return set, nil, err
	}
	chosen, err := choose(fs.Args())
	return set, chosen, err
}

func usage(w io.Writer, fs *pflag.FlagSet) {
	fmt.Fprint(w, "Usage: bench [flags] [NAME…]\n\nMeasures, all taken when no name is given:\n")
	list(w, measures())
	fmt.Fprint(w, "\nReproductions of faults, all made for the name "+everyReproduction+":\n")
	list(w, reproductions())
	fmt.Fprintf(w, "\nFlags:\n%s", fs.FlagUsages())
}

func list(w io.Writer, all []measure) {
	for _, m := range all {
		fmt.Fprintf(w, "  %-14s %s\n", m.name, m.about)
	}
}

// everyReproduction is the name that stands for all of them.
const everyReproduction = "reproductions"

// choose finds measures by name; no names mean all measures.
func choose(names []string) ([]measure, error) {
	if len(names) == 0 {
		return measures(), nil
	}
	var chosen []measure
	for _, name := range names {
		if name == everyReproduction {
			chosen = append(chosen, reproductions()...)
			continue
		}
		m, err := find(name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, m)
	}
	return chosen, nil
}

func find(name string) (measure, error) {
	known := []string{everyReproduction}
	for _, m := range slices.Concat(measures(), reproductions()) {
		if m.name == name {
			return m, nil
		}
		known = append(known, m.name)
	}
	return measure{}, fmt.Errorf("unknown measure %q; there are: %s", name, strings.Join(known, ", "))
}
