package sim

import "time"

// deed is something that a process does with the network as soon as it runs.
type deed struct {
	link *link
	send bool
	do   func(overdue bool)
}

// whenAwake does something now, or when the process goes on. A process that stands still
// has had at most one request to a node on its tongue; overdue says that this is not it,
// so that it must not be sent if its time is over.
func (k *link) whenAwake(send bool, do func(overdue bool)) {
	p := k.life.proc
	p.mu.Lock()
	if p.paused {
		p.held = append(p.held, deed{link: k, send: send, do: do})
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	do(false)
}

// stall waits for the end of a pause, if pauses are like that.
func (k *link) stall() {
	p := k.life.proc
	order := k.jitter(k.waiting)
	p.mu.Lock()
	stalled, awake := p.w.set.Stall && p.paused, p.awake
	p.mu.Unlock()
	if stalled {
		<-awake
		time.Sleep(order)
	}
}

// pause stops the process until resume.
func (p *proc) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
}

// stop needs p.mu.
func (p *proc) stop() {
	if !p.paused {
		p.paused, p.since, p.awake = true, time.Now(), make(chan struct{})
	}
}

// pauseAt stops the process when it is about to send its n-th request from now on: in the
// middle of a round.
func (p *proc) pauseAt(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = n
}

// spring is called before each request.
func (p *proc) spring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trap == 0 {
		return
	}
	if p.trap--; p.trap == 0 {
		p.stop()
	}
}

// resume lets the process go on: with every node in order, with different nodes in any.
func (p *proc) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = 0
	if !p.paused {
		return
	}
	p.paused, p.slept = false, p.slept+time.Since(p.since)
	close(p.awake)
	queues := map[*link][]deed{}
	for _, d := range p.held {
		queues[d.link] = append(queues[d.link], d)
	}
	p.held = nil
	for k, queue := range queues {
		go k.catchUp(queue)
	}
}

// catchUp does what a pause has held up.
func (k *link) catchUp(queue []deed) {
	sent := false
	for _, d := range queue {
		time.Sleep(k.jitter(k.late))
		if k.life.proc.w.set.Stall {
			go d.do(d.send && sent)
		} else {
			d.do(d.send && sent)
		}
		sent = sent || d.send
	}
}

// asleep is how long the process has stood still.
func (p *proc) asleep() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paused {
		return p.slept
	}
	return p.slept + time.Since(p.since)
}
