package podstatus

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podlease/podlease/pkg/election"
)

var _ election.Publisher = (*Publisher)(nil)

func TestRoleAppearsAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		p.labels[DefaultRoleLabel] = "active" // left by a previous life
		pub := publish(t, p, c, true)
		synctest.Wait()
		expectRole(t, p, "standby")

		c.elect(1764495600123456)
		synctest.Wait()
		expectRole(t, p, "active")
		if got := p.annotation("podlease.io/fencing-token"); got != "1764495600123456" {
			t.Errorf("fencing-token %q", got)
		}
		if got, want := p.annotation("podlease.io/active-since"), time.Now().UTC().Format("2006-01-02T15:04:05.000Z"); got != want {
			t.Errorf("active-since %q, want %q", got, want)
		}
		if got := p.conditions["podlease.io/active"]; got != "True" {
			t.Errorf("condition %q", got)
		}
		if err := pub.Sync(t.Context()); err != nil || !pub.InSync() {
			t.Errorf("Sync %v, InSync %v", err, pub.InSync())
		}

		c.lose()
		synctest.Wait()
		expectRole(t, p, "standby")
		if len(p.annotations) != 0 {
			t.Errorf("annotations %v stayed", p.annotations)
		}
		if got := p.conditions["podlease.io/active"]; got != "False" {
			t.Errorf("condition %q", got)
		}
		requests := p.count()
		time.Sleep(time.Hour)
		if p.count() != requests {
			t.Errorf("%d requests while nothing changed", p.count()-requests)
		}
	})
}

func TestPatchIsGuardedAndMinimal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods()
		publish(t, p, newCandidate(), false)
		synctest.Wait()
		var got map[string]any
		if err := json.Unmarshal([]byte(p.requests[0]), &got); err != nil {
			t.Fatal(err)
		}
		meta, ok := got["metadata"].(map[string]any)
		if !ok || len(got) != 1 || meta["uid"] != ownPod.UID {
			t.Errorf("patch %s: want metadata alone, with the uid", p.requests[0])
		}
	})
}

func TestTermThatRunsOutIsTakenOffTheLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		publish(t, p, c, false)
		c.set(election.Leadership{Role: election.Active}, 7*time.Second) // and nobody says a word again
		synctest.Wait()
		expectRole(t, p, "active")
		time.Sleep(7*time.Second + 10*time.Millisecond)
		synctest.Wait()
		expectRole(t, p, "standby")
	})
}

func TestServerThatNeverAnswersDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		p.fail(silent)
		pub := publish(t, p, c, false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		err := pub.Sync(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("Sync returned %v after %v", err, time.Since(begun))
		}
		c.elect(1)
		time.Sleep(time.Minute)
		if pub.InSync() || pub.Failures() < 20 {
			t.Errorf("InSync %v, %d failures after a minute of bounded tries", pub.InSync(), pub.Failures())
		}
		p.fail(nil)
		time.Sleep(2 * time.Second)
		expectRole(t, p, "active")
		if !pub.InSync() {
			t.Error("not in sync")
		}
	})
}

// slow is a server that needs d for a patch, and gives up when it was told to.
func slow(p *pods, d time.Duration) func(*http.Request) *http.Response {
	return func(req *http.Request) *http.Response {
		p.mu.Lock()
		body := p.requests[len(p.requests)-1]
		p.mu.Unlock()
		limit, err := time.ParseDuration(req.URL.Query().Get("timeout"))
		if err != nil {
			return answer(400, err.Error())
		}
		select {
		case <-req.Context().Done():
			return nil
		case <-time.After(min(d, limit)):
		}
		if limit < d {
			return refusing(504, "Timeout", "request did not complete within the allotted timeout")(req)
		}
		return p.apply(req, []byte(body))
	}
}

func TestServerSlowerThanOneTryIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		p.fail(slow(p, 3*time.Second))
		publish(t, p, c, false)
		c.elect(1)
		time.Sleep(5 * time.Second)
		expectRole(t, p, "active")
	})
}

func TestLongTryIsGivenUpWhenTheRoleChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		p.fail(refusing(504, "Timeout", "request did not complete within the allotted timeout"))
		c.elect(1)
		publish(t, p, c, false)
		synctest.Wait()
		p.fail(silent)
		time.Sleep(2 * time.Second) // in which a short try would have ended
		tries := p.count()
		time.Sleep(2 * time.Second)
		if p.count() != tries {
			t.Errorf("%d more tries, want one long one", p.count()-tries)
		}
		p.fail(nil)
		c.lose()
		synctest.Wait()
		expectRole(t, p, "standby")
	})
}

// A server may carry out a request late that it never answered, after one that it did.
func TestUnansweredPatchIsOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		publish(t, p, c, false)
		synctest.Wait()
		p.fail(silent)
		c.elect(1)
		time.Sleep(500 * time.Millisecond)
		p.fail(nil)
		c.lose()
		time.Sleep(time.Second)
		expectRole(t, p, "standby")
		p.steal("active") // what the frozen server still had in hand
		time.Sleep(time.Second)
		synctest.Wait()
		expectRole(t, p, "standby")
		p.steal("active") // the last of it
		time.Sleep(5 * time.Second)
		expectRole(t, p, "standby")
		n := p.count()
		time.Sleep(time.Hour)
		if p.count() != n {
			t.Errorf("%d patches long after", p.count()-n)
		}
	})
}

// Otherwise the lease would be given away while the Pod is labelled active.
func TestSyncDoesNotTrustWhatWasConfirmedBeforeAnUnansweredPatch(t *testing.T) {
	for name, lost := range map[string]*http.Response{"no answer": nil, "504": answer(504, "")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, c := newPods(), newCandidate()
				pub := publish(t, p, c, false)
				synctest.Wait()
				p.fail(func(req *http.Request) *http.Response {
					p.steal("active") // it is carried out, and only the answer is lost
					return lost
				})
				c.elect(1)
				time.Sleep(1050 * time.Millisecond)
				c.lose()
				if pub.InSync() {
					t.Error("in sync")
				}
				p.fail(nil)
				if err := pub.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				expectRole(t, p, "standby")
			})
		})
	}
}

func TestSyncWaitsForAPatchUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		pub := publish(t, p, c, false)
		synctest.Wait()
		p.dialling = func() { time.Sleep(20 * time.Millisecond) }
		p.fail(func(req *http.Request) *http.Response {
			p.fail(nil)
			time.Sleep(50 * time.Millisecond)
			p.steal("active")
			return answer(200, "{}")
		})
		c.elect(1)
		time.Sleep(30 * time.Millisecond)
		c.lose()
		if err := pub.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 200 { // it must not have returned with the other patch still to come
			expectRole(t, p, "standby")
			time.Sleep(time.Millisecond)
		}
	})
}

func TestLabelIsRightSoonAfterTheServerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		publish(t, p, c, false)
		synctest.Wait()
		p.fail(refusing(503, "ServiceUnavailable", "down"))
		c.elect(1)
		time.Sleep(10 * time.Minute)
		if tries := p.count(); tries > 1300 {
			t.Errorf("%d tries in ten minutes", tries)
		}
		p.fail(nil)
		time.Sleep(time.Second + 100*time.Millisecond)
		expectRole(t, p, "active")
	})
}

// A real API server answers 403 to everybody for a second after its start.
func TestRefusalsOfServerThatJustReturnedDoNotDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		publish(t, p, c, false)
		synctest.Wait()
		p.fail(refusing(503, "ServiceUnavailable", "down"))
		c.elect(1)
		time.Sleep(20 * time.Second)
		p.fail(refusing(403, "Forbidden", "cannot patch"))
		time.Sleep(time.Second)
		p.fail(nil)
		time.Sleep(1700 * time.Millisecond) // the wait doubles: the next try may be that late
		expectRole(t, p, "active")
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		p.fail(func(*http.Request) *http.Response {
			r := answer(429, "slow down")
			r.Header.Set("Retry-After", "7")
			return r
		})
		publish(t, p, c, false)
		synctest.Wait()
		c.elect(1) // even news wait
		time.Sleep(6900 * time.Millisecond)
		if p.count() != 1 {
			t.Errorf("%d requests within Retry-After", p.count())
		}
		p.fail(nil)
		time.Sleep(time.Second)
		expectRole(t, p, "active")
	})
}

func TestRefusalIsRetriedRarely(t *testing.T) {
	for _, code := range []int{400, 403, 405} {
		synctest.Test(t, func(t *testing.T) {
			p, c := newPods(), newCandidate()
			p.fail(refusing(code, "Refused", "no"))
			pub := publish(t, p, c, false)
			time.Sleep(time.Hour)
			if n := p.count(); n < 100 || n > 300 || pub.Failures() != uint64(n) {
				t.Errorf("%d: %d tries and %d failures in an hour", code, n, pub.Failures())
			}
			p.fail(nil)
			time.Sleep(31 * time.Second)
			expectRole(t, p, "standby")
		})
	}
}

func TestConflictAndUnauthorizedAreRetriedSoon(t *testing.T) {
	for _, code := range []int{401, 409, 500} {
		synctest.Test(t, func(t *testing.T) {
			p, c := newPods(), newCandidate()
			p.fail(refusing(code, "Reason", "the object has been modified"))
			publish(t, p, c, false)
			time.Sleep(time.Minute)
			p.fail(nil)
			time.Sleep(5*time.Second + 100*time.Millisecond)
			expectRole(t, p, "standby")
		})
	}
}

func TestGonePodEndsPublishing(t *testing.T) {
	otherUID := `{"kind":"Status","reason":"Invalid","details":{"causes":[{"field":"metadata.uid"}]}}`
	for name, fault := range map[string]func(*http.Request) *http.Response{
		"deleted":      refusing(404, "NotFound", `pods "orders-x1" not found`),
		"replaced":     func(*http.Request) *http.Response { return answer(422, otherUID) },
		"precondition": refusing(409, "Conflict", "Precondition failed: UID in precondition: u-1, UID in object meta: u-2"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, c := newPods(), newCandidate()
				p.fail(fault)
				pub := publish(t, p, c, false)
				if err := pub.Sync(t.Context()); !errors.Is(err, ErrPodGone) {
					t.Errorf("Sync: %v", err)
				}
				c.elect(1)
				time.Sleep(time.Hour)
				if p.count() != 1 || pub.InSync() {
					t.Errorf("%d requests, InSync %v", p.count(), pub.InSync())
				}
			})
		})
	}
}

func TestNotFoundFromSomethingElseIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods()
		p.fail(func(*http.Request) *http.Response { return answer(404, "<html>no such backend</html>") })
		publish(t, p, newCandidate(), false)
		time.Sleep(time.Second)
		p.fail(nil)
		time.Sleep(30 * time.Second)
		expectRole(t, p, "standby")
	})
}

// A process may be frozen between asking the candidate and sending what it said.
func TestOutdatedRoleIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		pub := publish(t, p, c, false)
		synctest.Wait()
		p.dialling = func() {
			if c.Leadership().Active() {
				c.lose()
			}
		}
		c.elect(1)
		time.Sleep(time.Minute)
		for _, r := range p.requests {
			if strings.Contains(r, `"active"`) {
				t.Errorf("sent %s", r)
			}
		}
		if pub.Failures() != 0 || !pub.InSync() {
			t.Errorf("%d failures, InSync %v", pub.Failures(), pub.InSync())
		}
	})
}

func TestStolenLabelIsPutRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		pub := publish(t, p, c, false)
		synctest.Wait()
		for _, stolen := range []string{"active", "", "king"} {
			p.steal(stolen)
			pub.Observe(map[string]string{DefaultRoleLabel: stolen})
			synctest.Wait()
			expectRole(t, p, "standby")
		}
		n := p.count()
		pub.Observe(map[string]string{DefaultRoleLabel: "standby"})
		time.Sleep(time.Minute)
		if p.count() != n {
			t.Error("patched without need")
		}
	})
}

func TestClearWaitsOnlyForALabelThatMaySayActive(t *testing.T) {
	for name, tc := range map[string]struct {
		observed []string
		waits    bool
	}{
		"unknown": {nil, true},
		"active":  {[]string{"active"}, true},
		"standby": {[]string{"standby"}, false},
		"none":    {[]string{""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPods()
				p.fail(silent)
				pub := publish(t, p, newCandidate(), false)
				for _, role := range tc.observed {
					pub.Observe(map[string]string{DefaultRoleLabel: role})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := pub.Clear(ctx); (err != nil) != tc.waits {
					t.Errorf("Clear: %v", err)
				}
				p.fail(nil)
				if err := pub.Clear(t.Context()); err != nil || tc.waits != (p.role() == "standby") {
					t.Errorf("Clear: %v, role label %q", err, p.role())
				}
			})
		})
	}
}

func TestDeletionCost(t *testing.T) {
	for name, tc := range map[string]struct{ before, active, standby string }{
		"template sets none":     {"", activeCost, ""},
		"template sets its own":  {"7", "7", "7"},
		"left by previous life":  {activeCost, activeCost, ""},
		"template sets hundred":  {"100", "100", "100"},
		"template sets negative": {"-1", "-1", "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, c := newPods(), newCandidate()
				if tc.before != "" {
					p.annotations[deletionCostKey] = tc.before
				}
				publish(t, p, c, false)
				for range 2 {
					synctest.Wait()
					if got := p.annotation(deletionCostKey); got != tc.standby {
						t.Errorf("standby: %q, want %q", got, tc.standby)
					}
					c.elect(1)
					synctest.Wait()
					if got := p.annotation(deletionCostKey); got != tc.active {
						t.Errorf("active: %q, want %q", got, tc.active)
					}
					c.lose()
				}
			})
		})
	}
}

// Something between us and etcd may rewrite Pods; that must not make a loop.
func TestDeletionCostThatDoesNotStayIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPods(), newCandidate()
		p.fail(func(req *http.Request) *http.Response { return answer(200, `{"metadata":{"uid":"u-1"}}`) })
		publish(t, p, c, false)
		c.elect(1)
		time.Sleep(time.Hour)
		if p.count() > 3 {
			t.Errorf("%d requests", p.count())
		}
	})
}

func TestRoleLabelKeyIsChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods()
		pub, err := New(Config{API: p.client(t), Pod: ownPod, RoleLabel: "example.com/role"})
		if err != nil {
			t.Fatal(err)
		}
		go pub.Run(t.Context(), newCandidate())
		synctest.Wait()
		if got := p.label("example.com/role"); got != "standby" || p.role() != "" {
			t.Errorf("example.com/role is %q, default key %q", got, p.role())
		}
	})
}

func TestPodMustBeNamed(t *testing.T) {
	for _, pod := range []Pod{{}, {Namespace: "a", Name: "b"}, {Namespace: "a", UID: "c"}, {Namespace: "a", Name: "b/../c", UID: "d"}} {
		if _, err := New(Config{Pod: pod}); err == nil {
			t.Errorf("%+v was taken", pod)
		}
	}
}

func expectRole(t *testing.T, p *pods, want string) {
	t.Helper()
	if got := p.role(); got != want {
		t.Errorf("role label is %q, want %q", got, want)
	}
}
