package recipes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"

	"github.com/podlease/podlease/pkg/fencing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A row", func() {
	It("takes several writes of a term where <= is compared", func(ctx SpecContext) {
		rows := Rows{DB: db}
		Expect(rows.Write(ctx, "a", "one", 33)).To(Succeed())
		Expect(rows.Write(ctx, "a", "two", 33)).To(Succeed())
		Expect(rows.Write(ctx, "a", "three", 34)).To(Succeed())
		Expect(rows.Write(ctx, "a", "four", 33)).To(MatchError(ErrStale))
		Expect(readText(ctx, `SELECT payload FROM job WHERE id = 'a'`)).To(Equal("three"))
	})

	It("takes one write of a term where < is compared, also when its answer was lost", func(ctx SpecContext) {
		rows := Rows{DB: db}
		Expect(rows.WriteOnce(ctx, "b", "one", 33)).To(Succeed())
		Expect(rows.WriteOnce(ctx, "b", "one again", 33)).To(MatchError(ErrStale))
		Expect(rows.WriteOnce(ctx, "b", "two", 34)).To(Succeed())
		Expect(rows.WriteOnce(ctx, "b", "one again", 33)).To(MatchError(ErrStale))
		Expect(readText(ctx, `SELECT payload FROM job WHERE id = 'b'`)).To(Equal("two"))
	})

	It("keeps the largest token exactly", func(ctx SpecContext) {
		Expect(Rows{DB: db}.Write(ctx, "c", "", fencing.MaxToken)).To(Succeed())
		Expect(Rows{DB: db}.Write(ctx, "c", "", fencing.MaxToken-1)).To(MatchError(ErrStale))
	})
})

var _ = Describe("A transaction", func() {
	nothing := func(*sql.Tx) error { return nil }

	It("of an old holder waits for that of the new one, and is refused then", func(ctx SpecContext) {
		fenced := Fenced{DB: db, Lock: "waiting"}
		old := make(chan error, 1)
		Expect(fenced.Do(ctx, 34, func(*sql.Tx) error {
			go func() { old <- fenced.Do(ctx, 33, nothing) }()
			Eventually(ctx, func(ctx context.Context) string {
				return readText(ctx, `SELECT count(*)::text FROM pg_stat_activity WHERE wait_event_type = 'Lock'`)
			}).Should(Equal("1"), "the old one has to wait")
			return nil
		})).To(Succeed())
		Eventually(ctx, old).Should(Receive(MatchError(ErrStale)))
	})

	It("that begins a term shuts the old holder out of rows that nobody has touched", func(ctx SpecContext) {
		fenced := Fenced{DB: db, Lock: "beginning"}
		Expect(fenced.Do(ctx, 33, nothing)).To(Succeed())
		Expect(fenced.Do(ctx, 34, nothing)).To(Succeed())
		Expect(fenced.Do(ctx, 33, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, overwriteJob, "untouched", "too late")
			return err
		})).To(MatchError(ErrStale))
	})

	It("that fails leaves the fence as it was", func(ctx SpecContext) {
		fenced, broken := Fenced{DB: db, Lock: "failing"}, errors.New("broken")
		Expect(fenced.Do(ctx, 34, func(*sql.Tx) error { return broken })).To(MatchError(broken))
		Expect(fenced.Do(ctx, 33, nothing)).To(Succeed())
	})
})

var _ = Describe("An HTTP service", func() {
	It("still refuses an old holder when it has been started again", func(ctx SpecContext) {
		path := filepath.Join(GinkgoT().TempDir(), "document")
		serve := func() *httptest.Server {
			service, err := NewService(path)
			Expect(err).NotTo(HaveOccurred())
			return httptest.NewServer(service.Handler())
		}
		server := serve()
		Expect(put(ctx, server.URL+"/document", 34, "kept")).To(Succeed())
		server.Close()
		server = serve()
		defer server.Close()
		Expect(put(ctx, server.URL+"/document", 33, "too late")).To(MatchError(ErrStale))
		_, body, err := do(ctx, "GET", server.URL+"/document", 0, "")
		Expect(err).NotTo(HaveOccurred())
		Expect(body).To(Equal("kept"))
	})
})

var _ = Describe("A Redis key", func() {
	It("takes several writes of a term and compares the largest tokens exactly", func(ctx SpecContext) {
		keys := Keys{Redis: data.Client()}
		Expect(keys.Write(ctx, "exact", "one", fencing.MaxToken-1)).To(Succeed())
		Expect(keys.Write(ctx, "exact", "two", fencing.MaxToken)).To(Succeed())
		Expect(keys.Write(ctx, "exact", "three", fencing.MaxToken)).To(Succeed())
		Expect(keys.Write(ctx, "exact", "four", fencing.MaxToken-1)).To(MatchError(ErrStale))
		Expect(data.Client().HGetAll(ctx, "exact").Val()).To(Equal(map[string]string{"token": "9007199254740991", "value": "three"}))
	})
})

var _ = Describe("The term as a value to compare", func() {
	It("cannot be claimed by a holder that was paused after having asked", func(ctx SpecContext) {
		_, err := db.ExecContext(ctx, `INSERT INTO report (id) VALUES ('claim')`)
		Expect(err).NotTo(HaveOccurred())
		terms := Terms{DB: db}
		old, current := answering("old"), answering("current")

		_, err = terms.Claim(ctx, "claim", func(ctx context.Context) (fencing.Leadership, error) {
			l, err := old(ctx) // active; then the pause, in which the next term claims and writes
			term, claimed := terms.Claim(ctx, "claim", current)
			Expect(claimed).NotTo(HaveOccurred())
			Expect(terms.Write(ctx, "claim", "the current one's", term)).To(Succeed())
			return l, err
		})
		Expect(err).To(MatchError(ErrStale))
		Expect(terms.Write(ctx, "claim", "too late", "old")).To(MatchError(ErrStale))
		Expect(readText(ctx, `SELECT payload FROM report WHERE id = 'claim'`)).To(Equal("the current one's"))
	})

	It("is not claimed by one that is not active", func(ctx SpecContext) {
		_, err := db.ExecContext(ctx, `INSERT INTO report (id) VALUES ('standby')`)
		Expect(err).NotTo(HaveOccurred())
		_, err = Terms{DB: db}.Claim(ctx, "standby", func(context.Context) (fencing.Leadership, error) {
			return fencing.Leadership{Reason: "held by another"}, nil
		})
		Expect(err).To(MatchError(ContainSubstring("not active: held by another")))
	})
})

// answering is a sidecar that is active in a term.
func answering(term string) func(context.Context) (fencing.Leadership, error) {
	GinkgoHelper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"role":"active","active":true,"fencingToken":1,"validForMs":3600000,"term":%q}`, term)
	}))
	DeferCleanup(server.Close)
	return fencing.Sidecar{URL: server.URL}.Leadership
}
