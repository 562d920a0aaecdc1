package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/recorder"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// question is a connection on which a candidate is asked whether it is active.
type question struct {
	net.Conn
	in *bufio.Reader
}

func ask(ctx context.Context, addr string) *question {
	GinkgoHelper()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	Expect(err).NotTo(HaveOccurred())
	q := &question{c, bufio.NewReader(c)}
	q.send()
	return q
}

func (q *question) send() {
	GinkgoHelper()
	_, err := io.WriteString(q, "GET /leader HTTP/1.1\r\nHost: candidate\r\n\r\n")
	Expect(err).NotTo(HaveOccurred())
}

// answer is the status of the next answer.
func (q *question) answer() int {
	GinkgoHelper()
	Expect(q.SetReadDeadline(time.Now().Add(behaviour.Patience))).To(Succeed())
	response, err := http.ReadResponse(q.in, nil)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode
}

// freezeHolder stops the active candidate for two TTLs, and longer if need be until
// another is active with a greater token. It asks it meanwhile, on several connections, so
// that the answers are the first it makes when it wakes.
func freezeHolder(ctx context.Context, f *behaviour.Field) (answers []int) {
	GinkgoHelper()
	holder := f.Holder(ctx)
	s := f.Sidecars[holder.Who]
	var questions []*question
	for range 3 {
		q := ask(ctx, s.Addr)
		defer q.Close()
		q.answer()
		questions = append(questions, q)
	}
	Expect(s.Freeze()).To(Succeed())
	end := boottime.Now() + 2*f.TTL
	for _, q := range questions {
		q.send()
	}
	idle(ctx, end)
	_, err := f.Recorder.Wait(ctx, func(r recorder.Run) bool { return r.Who != holder.Who && r.Token > holder.Token })
	Expect(err).NotTo(HaveOccurred())
	Expect(s.Thaw()).To(Succeed())
	for _, q := range questions {
		answers = append(answers, q.answer())
	}
	return answers
}

var _ = Describe("A holder that is frozen for two TTLs", func() {
	It("answers 503 when it wakes, and another is active with a greater token", func(ctx SpecContext) {
		const locks = 4 // at a time
		nodes := redistest.Cluster(GinkgoTB(), 3)
		var frozen, no, active atomic.Int64
		var running sync.WaitGroup
		for i := range locks {
			f := &behaviour.Field{
				Program: program, Nodes: nodes, Lock: fmt.Sprintf("lock-%d", i), TTL: time.Second,
				Every: 5 * time.Millisecond, Args: []string{"--node-timeout=100ms"},
			}
			f.Start(3)
			running.Go(func() {
				defer GinkgoRecover()
				for frozen.Add(1) <= int64(*rounds) {
					for _, status := range freezeHolder(ctx, f) {
						if status == http.StatusServiceUnavailable {
							no.Add(1)
						} else {
							active.Add(1)
						}
					}
				}
				f.ExpectExclusion()
			})
		}
		running.Wait()
		tellFigures("frozen for two TTLs", fmt.Sprintf("%d times; first answers: %d × 503, %d × another", *rounds, no.Load(), active.Load()))
		Expect(active.Load()).To(BeZero())
		Expect(no.Load()).To(BeEquivalentTo(3 * *rounds))
	}, SpecTimeout(time.Duration(*rounds)*4*time.Second+behaviour.Patience))
})
