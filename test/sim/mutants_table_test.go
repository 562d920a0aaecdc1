package sim

// mutant is the product with one rule broken.
type mutant struct {
	name  string
	edits []edit
	world string // that it is noticed in
	harm  string // what is noticed
	seed  uint64 // the first that notices
}

// edit is a change of one file.
type edit struct{ file, old, new string }

const (
	twoActive  = "active at the same instant"
	tooEarly   = "may still be stopping"
	revival    = "came back to life"
	lossForNil = "lost its lease although replies were missing"
	oldToken   = "has token"
)

var mutants = []mutant{
	{
		name: "time read after the reply", harm: twoActive, seed: 2, world: "late-replies",
		edits: []edit{{file: "pkg/redlock/lease.go",
			old: `le.ballot.count(q.node, q.sent, now, reply)`,
			new: `le.ballot.count(q.node, now, now, reply)`}},
	},
	{
		name: "timeout counted as no", harm: lossForNil, seed: 1,
		edits: []edit{{file: "pkg/redlock/lease.go",
			old: `	default:
		a.unknown = true
	}`,
			new: `	default:
		a.unknown = true
		le.ballot.votes[q.node] = vote{}
	}`}},
	},
	{
		name: "quorum of reachable nodes", harm: twoActive, seed: 6,
		edits: []edit{{file: "pkg/redlock/lease.go",
			old: `	a.inFlight, a.err = false, err
`,
			new: `	a.inFlight, a.err = false, err
	reachable := 0
	for _, other := range le.answers {
		if other.err == nil {
			reachable++
		}
	}
	le.ballot.quorum = Quorum(reachable)
`}},
	},
	{
		name: "no quarantine", harm: twoActive, seed: 2,
		edits: []edit{{file: "pkg/redlock/locker.go",
			old: `req.Quarantine = l.opt.Quarantine`,
			new: `req.Quarantine = 0`}},
	},
	{
		name: "quarantine from one's own TTL", harm: twoActive, seed: 20, world: "forgetful",
		edits: []edit{{file: "pkg/redlock/locker.go",
			old: `	req.Quarantine = l.opt.Quarantine
	req.Unseen = !w.answered
	if w.answered && w.mature(now, l.opt.Quarantine) {`,
			new: `	req.Quarantine = l.opt.TTL + time.Second
	req.Unseen = !w.answered
	if w.answered && w.mature(now, req.Quarantine) {`},
			{file: "pkg/redlock/contest.go",
				old: `return now + l.watches[i].matureIn(now, l.opt.Quarantine)`,
				new: `return now + l.watches[i].matureIn(now, l.opt.TTL+time.Second)`}},
	},
	{
		name: "re-take on a young node while the lease is held", harm: twoActive, seed: 6, world: "freed-twice",
		edits: []edit{
			{file: "pkg/redlock/lease.go",
				old: `HaveVote: now < le.ballot.votes[i].until,`,
				new: `HaveVote: le.ballot.held,`},
			{file: "pkg/redlock/ballot.go",
				old: `if r.Young && now >= v.until {`,
				new: `if r.Young && !b.held {`},
		},
	},
	{
		name: "dead token still counts", harm: twoActive, seed: 12, world: "mid-round",
		edits: []edit{
			{file: "pkg/redlock/release.go",
				old: `func (le *Lease) withdraw(ctx context.Context) {
	le.kill()
`,
				new: `func (le *Lease) withdraw(ctx context.Context) {
`},
			{file: "pkg/redlock/attempt.go",
				old: `		le.withdraw(ctx)
	}`,
				new: `		le.withdraw(ctx)
		time.Sleep(c.locker.opt.RenewInterval) // stragglers
		if errors.Is(err, errWithdrawn) && le.Holding() {
			err = nil
		}
	}`},
		},
	},
	{
		name: "attempt dated from its retry", harm: twoActive, seed: 10, world: "slow",
		edits: []edit{{file: "pkg/redlock/ballot.go",
			old: `	b.settleFence(now)
	b.holding(now)
}`,
			new: `	for j := range b.votes {
		if w := &b.votes[j]; !b.held && w.until > 0 {
			w.until = max(w.until, sent+b.life)
		}
	}
	b.settleFence(now)
	b.holding(now)
}`}},
	},
	{
		name: "no latch at the end of holding", harm: revival, seed: 59, world: "mid-round",
		edits: []edit{{file: "pkg/redlock/ballot.go",
			old: `		b.dead = true
	}
	return ok`,
			new: `	}
	return ok`}},
	},
	{
		name: "deduplication that lowers q", harm: twoActive, seed: 1, world: "astray",
		edits: []edit{{file: "pkg/redlock/lease.go",
			old: `	a.inFlight, a.err = false, err
`,
			new: `	a.inFlight, a.err = false, err
	servers := len(le.answers)
	le.locker.mu.Lock()
	for j := range le.answers {
		if le.locker.twin(j) >= 0 {
			servers--
		}
	}
	le.locker.mu.Unlock()
	le.ballot.quorum = Quorum(servers)
`}},
	},
	{
		name: "stale fence answers", harm: oldToken, seed: 2, world: "stale",
		edits: []edit{{file: "pkg/redlock/ballot.go",
			old: `	if _, exact, _ := b.valid(now); exact >= b.quorum {`,
			new: `	exact := 0
	for _, v := range b.votes {
		if v.fence == b.proposal {
			exact++
		}
	}
	if exact >= b.quorum {`}},
	},
	{name: "Go's clock over a suspend", harm: twoActive, seed: 3, world: "go-clock"},
	{
		name: "release before the workload stopped", harm: tooEarly, seed: 3,
		edits: []edit{{file: "pkg/election/ending.go",
			old: `	return since >= c.opt.StopBudget, true
}`,
			new: `	return true, true
}`}},
	},
	{name: "two nodes of the list swapped in one step", harm: twoActive, seed: 1, world: "swap-two"},
}
