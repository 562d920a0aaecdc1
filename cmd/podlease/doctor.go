package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/podlease/podlease/cmd/podlease/survey"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/pkg/settings"
)

const doctorAbout = `Looks at each node that is to hold leases: can it be reached and how fast, is it an
independent server, for how long has it been up, what may the user do there, how does its
clock run. It takes a lock that nobody else uses, for a moment.

Exit codes: 0 all is well; 1 there are warnings; 3 a node is unfit, or cannot be reached.`

// exitWarnings is for what works, and could be better.
const exitWarnings = 1

type doctorOptions struct {
	nodeOptions
	timeout    time.Duration
	quarantine time.Duration
	output     string
}

func doctorCommand() command {
	return command{name: "doctor", summary: "look whether Redis nodes are fit to hold leases", about: doctorAbout, prepare: prepareDoctor}
}

const (
	timeoutAllowed          = "a duration from 1ms to 1m, such as 200ms"
	doctorQuarantineAllowed = "a duration of at least 0s, such as 31s"
)

func prepareDoctor(flags *settings.Flags) action {
	opt := &doctorOptions{}
	opt.addFlags(flags)
	flags.Duration(&opt.timeout, redisnode.DefaultNodeTimeout, settings.Flag{Name: "node-timeout", Usage: "the node timeout of the candidates", Allowed: timeoutAllowed})
	flags.Duration(&opt.quarantine, settings.LongTTL+time.Second, settings.Flag{Name: "quarantine", Usage: "the quarantine of the candidates", Allowed: doctorQuarantineAllowed})
	flags.Enum(&opt.output, outputTable, []string{outputTable, outputJSON, outputYAML}, settings.Flag{Name: "output", Short: "o", Usage: "how it is told"})
	return func(ctx context.Context, call call) error {
		switch {
		case opt.timeout < time.Millisecond || opt.timeout > time.Minute:
			return flags.Reject("node-timeout", opt.timeout.String(), timeoutAllowed)
		case opt.quarantine < 0:
			return flags.Reject("quarantine", opt.quarantine.String(), doctorQuarantineAllowed)
		}
		nodes, err := opt.open(flags)
		if err != nil {
			return err
		}
		defer nodes.Close()
		d := nodes.Diagnose(ctx, opt.names, survey.Lease{NodeTimeout: opt.timeout, Quarantine: opt.quarantine})
		if err := writeDiagnosis(call.stdout, opt.output, d); err != nil {
			return err
		}
		return exitOf(d.Verdict)
	}
}

func exitOf(v survey.Verdict) error {
	switch v {
	case survey.Unfit:
		return commandError(exitUnfit)
	case survey.Warning:
		return commandError(exitWarnings)
	default:
		return nil
	}
}

func writeDiagnosis(w io.Writer, output string, d survey.Diagnosis) error {
	switch output {
	case outputJSON:
		return json.NewEncoder(w).Encode(d)
	case outputYAML:
		text, err := yaml.Marshal(d)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	for _, node := range d.Nodes {
		fmt.Fprintf(w, "%s: %s\n", node.Node, node.Verdict)
		if err := writeFindings(w, node.Checks); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "all nodes together\n")
	if err := writeFindings(w, d.Set); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "verdict: %s\n", d.Verdict)
	return err
}

func writeFindings(w io.Writer, checks []survey.Check) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", c.Verdict, c.Name, c.Found)
		if c.Advice != "" {
			fmt.Fprintf(table, "  \t\t→ %s\n", c.Advice)
		}
	}
	return table.Flush()
}
