package podstatus

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/pkg/election"
)

func record(t *testing.T, p *pods) *Recorder {
	t.Helper()
	r, err := NewRecorder(p.client(t), ownPod, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	go r.Run(t.Context())
	return r
}

func TestEventIsAboutThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods()
		record(t, p).Record(election.Event{Kind: election.LeaderLost, Message: "no quorum"})
		synctest.Wait()
		var e struct {
			Reason, Message, Type string
			Count                 int
			InvolvedObject        struct{ Kind, Namespace, Name, UID string }
		}
		if err := json.Unmarshal([]byte(p.requests[0]), &e); err != nil {
			t.Fatal(err)
		}
		if e.Reason != "LeaderLost" || e.Message != "no quorum" || e.Type != "Warning" || e.Count != 1 {
			t.Errorf("event %+v", e)
		}
		if o := e.InvolvedObject; o.Kind != "Pod" || o.Namespace != "shop" || o.Name != "orders-x1" || o.UID != "u-1" {
			t.Errorf("about %+v", o)
		}
	})
}

func TestRepeatedEventIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods()
		var methods []string
		p.fail(func(req *http.Request) *http.Response {
			methods = append(methods, req.Method)
			if req.Method == http.MethodPatch && len(methods) == 3 {
				return refusing(404, "NotFound", "expired")(req)
			}
			return answer(200, "{}")
		})
		r := record(t, p)
		for range 3 {
			r.Record(election.Event{Kind: election.NodeUnfit, Message: "a"})
			synctest.Wait()
		}
		want := []string{"POST", "PATCH", "PATCH", "POST"} // the third found its event expired
		if len(methods) != len(want) {
			t.Fatalf("methods %v, want %v", methods, want)
		}
		for i := range want {
			if methods[i] != want[i] {
				t.Errorf("methods %v, want %v", methods, want)
			}
		}
	})
}

func TestEventsNeverBlockAndAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPods()
		p.fail(silent)
		r := record(t, p)
		begun := time.Now()
		for range 1000 {
			r.Record(election.Event{Kind: election.RedisQuorumLost, Message: "1 of 3"})
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("blocked for %v", d)
		}
		time.Sleep(time.Minute)
		if n := p.count(); n > eventBurst+int(time.Minute/eventEvery) {
			t.Errorf("%d requests in a minute", n)
		}
		time.Sleep(time.Hour)
		p.fail(nil)
		n := p.count()
		r.Record(election.Event{Kind: election.LeaderElected, Message: "again"})
		synctest.Wait()
		if p.count() != n+1 {
			t.Error("no event after the server's return")
		}
	})
}
