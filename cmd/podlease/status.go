package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/podlease/podlease/cmd/podlease/pods"
	"github.com/podlease/podlease/cmd/podlease/survey"
	"github.com/podlease/podlease/pkg/settings"
)

const statusAbout = `Tells of each lock who holds it, its fencing token, and what each node says. Without LOCK it
lists the locks that the nodes have keys of, which needs the right to SCAN. With
--namespace or --all-namespaces it lists the candidates' Pods as well, and whether their
role label agrees with the lock. It changes nothing.

Exit codes: 1 when fewer than a quorum of the nodes answered: then it is not known who
holds a lock.`

// What --output takes.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

// frameTime is how the time is told when status is told again and again.
const frameTime = "2006-01-02 15:04:05 -0700"

const intervalAllowed = "a duration from 100ms to 1h, such as 2s"

// patience is how long a node may take to answer a person.
const patience = 2 * time.Second

// nodeOptions say which nodes are asked, and how their keys are named.
type nodeOptions struct {
	redis settings.Redis
	names survey.Names
}

func (o *nodeOptions) addFlags(f *settings.Flags) {
	o.redis.AddFlags(f)
	f.String(&o.names.KeyPrefix, "podlease:", settings.Flag{Name: "key-prefix", Usage: "what every key and channel begins with", Allowed: "printable characters without spaces"})
	f.Bool(&o.names.BareKey, false, settings.Flag{Name: "bare-key", Usage: "the lock's name itself is the key"})
}

// open connects to the nodes, once everything is checked.
func (o *nodeOptions) open(f *settings.Flags) (*survey.Nodes, error) {
	if _, err := o.redis.Complete(f); err != nil {
		return nil, err
	}
	configs := o.redis.Configs(settings.Lease{NodeTimeout: patience})
	for i := range configs {
		configs[i].ClientName, configs[i].AllowUnfit = "podlease", true // an unfit node is asked all the same
	}
	return survey.Open(configs)
}

type statusOptions struct {
	nodeOptions
	cluster  clusterOptions
	output   string
	watch    bool
	interval time.Duration
}

func statusCommand() command {
	return command{name: "status", summary: "tell who holds a lock", arguments: "[LOCK…]", about: statusAbout, prepare: prepareStatus}
}

func prepareStatus(flags *settings.Flags) action {
	opt := &statusOptions{}
	opt.addFlags(flags)
	opt.cluster.addFlags(flags, "none: Pods are not looked at")
	flags.Enum(&opt.output, outputTable, []string{outputTable, outputJSON, outputYAML}, settings.Flag{Name: "output", Short: "o", Usage: "how it is told"})
	flags.Bool(&opt.watch, false, settings.Flag{Name: "watch", Short: "w", Usage: "tell again and again, until Ctrl-C"})
	flags.Duration(&opt.interval, 2*time.Second, settings.Flag{Name: "interval", Usage: "how often, with --watch", Allowed: intervalAllowed})
	locks := flags.Arguments()
	return func(ctx context.Context, call call) error {
		if err := opt.cluster.check(flags); err != nil {
			return err
		}
		if opt.interval < 100*time.Millisecond || opt.interval > time.Hour {
			return flags.Reject("interval", opt.interval.String(), intervalAllowed)
		}
		nodes, err := opt.open(flags)
		if err != nil {
			return err
		}
		defer nodes.Close()
		return opt.run(ctx, call, nodes, *locks)
	}
}

func (o *statusOptions) run(ctx context.Context, call call, nodes *survey.Nodes, locks []string) error {
	for {
		err := o.tell(ctx, call.stdout, nodes, locks)
		if !o.watch {
			return err
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(call.stderr, "podlease: %v\n", err)
		}
		select {
		case <-time.After(o.interval):
		case <-ctx.Done():
			return nil
		}
	}
}

// report is all that is told at once.
type report struct {
	Locks []lockReport `json:"locks"`
}

type lockReport struct {
	survey.Lock
	Pods []pods.Candidate `json:"pods,omitempty"`
}

func (o *statusOptions) tell(ctx context.Context, w io.Writer, nodes *survey.Nodes, locks []string) error {
	r, err := o.look(ctx, nodes, locks)
	if err != nil {
		return err
	}
	if o.watch && o.output == outputTable {
		fmt.Fprintln(w, time.Now().Format(frameTime))
	}
	if err := o.write(w, r); err != nil {
		return err
	}
	for _, l := range r.Locks {
		if l.Quorum.Answered < l.Quorum.Needed {
			return fmt.Errorf("lock %s: no quorum: %d of %d nodes answered", l.Lock.Lock, l.Quorum.Answered, l.Quorum.Size)
		}
	}
	return nil
}

func (o *statusOptions) look(ctx context.Context, nodes *survey.Nodes, locks []string) (report, error) {
	var candidates []pods.Candidate
	if o.cluster.namespace != "" || o.cluster.allNamespaces {
		var err error
		if _, candidates, err = o.cluster.candidates(ctx, ""); err != nil {
			return report{}, err
		}
	}
	if len(locks) == 0 {
		var err error
		if locks, err = nodes.Locks(ctx, o.names); err != nil {
			return report{}, fmt.Errorf("%w; name the locks to ask for", err)
		}
	}
	r := report{Locks: []lockReport{}}
	for _, lock := range locks {
		l := lockReport{Lock: nodes.Lock(ctx, o.names, lock)}
		l.Pods = agreement(candidates, l.Lock)
		r.Locks = append(r.Locks, l)
	}
	return r, nil
}

// agreement is the Pods of a lock, and whether their labels say what the nodes say, if that
// is known. A holder's identity may begin with the name of its cluster.
func agreement(candidates []pods.Candidate, l survey.Lock) []pods.Candidate {
	var out []pods.Candidate
	for _, p := range candidates {
		if p.Lock != l.Lock {
			continue
		}
		identity := p.Namespace + "/" + p.Name
		holds := l.Holder == identity || strings.HasSuffix(l.Holder, "/"+identity)
		p.Agrees = l.HolderKnown && holds == (p.Role == "active")
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b pods.Candidate) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return out
}

func (o *statusOptions) write(w io.Writer, r report) error {
	switch o.output {
	case outputJSON:
		return json.NewEncoder(w).Encode(r)
	case outputYAML:
		text, err := yaml.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "---\n%s", text)
		return err
	}
	return writeTable(w, r)
}

func writeTable(w io.Writer, r report) error {
	if len(r.Locks) == 0 {
		_, err := fmt.Fprintln(w, "the nodes have no lock")
		return err
	}
	for i, l := range r.Locks {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "LOCK %s: %s%s\n", l.Lock.Lock, heldBy(l.Lock), token(l.Lock))
		if err := writeNodes(w, l.Nodes); err != nil {
			return err
		}
		if err := writePods(w, l); err != nil {
			return err
		}
	}
	return nil
}

func heldBy(l survey.Lock) string {
	switch q := l.Quorum; {
	case l.Holder != "":
		return fmt.Sprintf("held by %s, %d of %d nodes", l.Holder, q.Held, q.Size)
	case l.NeverExpires:
		return fmt.Sprintf("no lease can be had: its key never expires, %d of %d nodes; look what wrote it, and delete it if nothing holds the lock", q.Held, q.Size)
	case l.HolderKnown:
		return fmt.Sprintf("nobody holds it, %d of %d nodes", q.Held, q.Size)
	default:
		return fmt.Sprintf("not known who holds it, %d of %d nodes answered", q.Answered, q.Size)
	}
}

// token is what is known of fencing tokens. A counter alone says nothing of a term: a
// proposal that came to nothing counts as well.
func token(l survey.Lock) string {
	switch {
	case l.TermToken != 0:
		return fmt.Sprintf(", fencing token %d", l.TermToken)
	case l.FencingToken != 0:
		return fmt.Sprintf(", the next fencing token is larger than %d", l.FencingToken)
	default:
		return ""
	}
}

func writeNodes(w io.Writer, votes []survey.Vote) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  NODE\tHELD BY\tEXPIRES IN\tLATENCY")
	for _, v := range votes {
		switch {
		case v.Error != "":
			fmt.Fprintf(table, "  %s\t-\t-\t%s\n", v.Node, v.Error)
		case v.HeldBy == "":
			fmt.Fprintf(table, "  %s\t-\t-\t%.1fms\n", v.Node, v.LatencyMs)
		case v.ExpiresInMs < 0:
			fmt.Fprintf(table, "  %s\t%s\tnever\t%.1fms\n", v.Node, v.HeldBy, v.LatencyMs)
		default:
			fmt.Fprintf(table, "  %s\t%s\t%.1fs\t%.1fms\n", v.Node, v.HeldBy, float64(v.ExpiresInMs)/1000, v.LatencyMs)
		}
	}
	return table.Flush()
}

func writePods(w io.Writer, l lockReport) error {
	if len(l.Pods) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  POD\tROLE\tAGREES")
	for _, p := range l.Pods {
		agrees := "yes"
		switch {
		case !l.HolderKnown:
			agrees = "not known"
		case !p.Agrees:
			agrees = "no: the lock says otherwise"
		}
		fmt.Fprintf(table, "  %s/%s\t%s\t%s\n", p.Namespace, p.Name, p.Role, agrees)
	}
	return table.Flush()
}
