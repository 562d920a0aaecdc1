package recipes

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"

	"github.com/podlease/podlease/pkg/fencing"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// store is something that two holders write to.
type store struct {
	name string
	// begin is what a holder does at the beginning of its term, nil if nothing.
	begin func(context.Context, fencing.Sidecar) error
	// careful writes as the recipe says, careless the same without the check.
	careful  func(context.Context, fencing.Leadership, string) error
	careless func(context.Context, string) error
	read     func(context.Context) string
}

// The client that is paused between asking and writing (Kleppmann, "How to do distributed
// locking", 2016), with real sidecars on real Redis servers, and real stores. The TTL is
// 5 s and not 10 s, so that the times of the story are half of its 0 s to 16 s.
var _ = Describe("A holder that is paused and writes after its term", Ordered, func() {
	const first, second, late = "the first holder's", "the second holder's", "the first holder's, too late"
	var stores []*store
	var old, current fencing.Leadership

	BeforeAll(func(ctx SpecContext) {
		stores = allStores(ctx)
		program := sidecartest.Build(GinkgoTB())
		nodes := redistest.Cluster(GinkgoTB(), 3)

		a := holder(program, "first", nodes)
		old = beginTerm(ctx, a, stores)

		Expect(a.Freeze()).To(Succeed()) // its machine stands still, and so does the app that has just asked
		b := holder(program, "second", nodes)
		current = beginTerm(ctx, b, stores)
		for _, s := range stores {
			Expect(s.careless(ctx, second)).To(Succeed(), s.name)
			Expect(s.careful(ctx, current, second)).To(Succeed(), s.name)
		}

		Expect(a.Thaw()).To(Succeed())
		woken, err := sidecarOf(a).Leadership(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(woken.Active()).To(BeFalse(), "a woken sidecar says no, to those who ask again")
		Expect(current.Token).To(BeNumerically(">", old.Token))
		Expect(current.Term).NotTo(Equal(old.Term))
	})

	for i, name := range []string{
		"a row, several writes per term", "a row, one write per term", "a transaction", "an HTTP service", "a Redis key", "the term as a value to compare",
	} {
		Describe("and writes to "+name, func() {
			BeforeEach(func() { Expect(stores[i].name).To(Equal(name)) })

			It("is refused with the check", func(ctx SpecContext) {
				Expect(stores[i].careful(ctx, old, late)).To(MatchError(ErrStale))
				Expect(stores[i].read(ctx)).To(Equal(second))
			})

			It("overwrites its successor without the check", func(ctx SpecContext) {
				Expect(stores[i].careless(ctx, late)).To(Succeed())
				Expect(stores[i].read(ctx)).To(Equal(late))
			})
		})
	}
})

func sidecarOf(s *sidecartest.Sidecar) fencing.Sidecar {
	return fencing.Sidecar{URL: "http://" + s.Addr}
}

// beginTerm waits until a candidate is active, and does what a holder does first.
func beginTerm(ctx context.Context, s *sidecartest.Sidecar, stores []*store) (l fencing.Leadership) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		l = active(ctx, g, s)
		for _, store := range stores {
			if store.begin != nil {
				g.Expect(store.begin(ctx, sidecarOf(s))).To(Succeed(), store.name)
			}
		}
		g.Expect(active(ctx, g, s).Term).To(Equal(l.Term)) // a machine that is too busy can cost a term
	}).Should(Succeed())
	return l
}

func active(ctx context.Context, g Gomega, s *sidecartest.Sidecar) fencing.Leadership {
	l, err := sidecarOf(s).Leadership(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.Active()).To(BeTrue(), l.Reason)
	return l
}

func allStores(ctx context.Context) []*store {
	GinkgoHelper()
	rows, fenced := Rows{DB: db}, Fenced{DB: db, Lock: "orders"}
	return []*store{
		jobStore("a row, several writes per term", func(ctx context.Context, id string, l fencing.Leadership, text string) error {
			return rows.Write(ctx, id, text, l.Token)
		}),
		jobStore("a row, one write per term", func(ctx context.Context, id string, l fencing.Leadership, text string) error {
			return rows.WriteOnce(ctx, id, text, l.Token)
		}),
		jobStore("a transaction", func(ctx context.Context, id string, l fencing.Leadership, text string) error {
			return fenced.Do(ctx, l.Token, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, overwriteJob, id, text)
				return err
			})
		}),
		serviceStore(),
		keyStore(),
		termStore(ctx),
	}
}

// overwriteJob is what an app without fencing does.
const overwriteJob = `INSERT INTO job VALUES ($1, $2, 0) ON CONFLICT (id) DO UPDATE SET payload = excluded.payload`

// jobStore is a row of the table job that is named after the recipe.
func jobStore(name string, careful func(ctx context.Context, id string, l fencing.Leadership, text string) error) *store {
	return &store{
		name:    name,
		careful: func(ctx context.Context, l fencing.Leadership, text string) error { return careful(ctx, name, l, text) },
		careless: func(ctx context.Context, text string) error {
			_, err := db.ExecContext(ctx, overwriteJob, name, text)
			return err
		},
		read: func(ctx context.Context) string { return readText(ctx, `SELECT payload FROM job WHERE id = $1`, name) },
	}
}

func readText(ctx context.Context, query string, args ...any) (text string) {
	GinkgoHelper()
	Expect(db.QueryRowContext(ctx, query, args...).Scan(&text)).To(Succeed())
	return text
}

// serviceStore sends requests with the holder's token; the careless one has no guard.
func serviceStore() *store {
	GinkgoHelper()
	service, err := NewService(filepath.Join(GinkgoT().TempDir(), "document"))
	Expect(err).NotTo(HaveOccurred())
	guarded, unguarded := httptest.NewServer(service.Handler()), httptest.NewServer(http.HandlerFunc(service.put))
	DeferCleanup(guarded.Close)
	DeferCleanup(unguarded.Close)
	return &store{
		name: "an HTTP service",
		careful: func(ctx context.Context, l fencing.Leadership, text string) error {
			return put(ctx, guarded.URL+"/document", l.Token, text)
		},
		careless: func(ctx context.Context, text string) error { return put(ctx, unguarded.URL, 0, text) },
		read: func(ctx context.Context) string {
			status, body, err := do(ctx, http.MethodGet, guarded.URL+"/document", 0, "")
			Expect(err).NotTo(HaveOccurred())
			Expect(status).To(Equal(http.StatusOK))
			return body
		},
	}
}

// put sends a document, and makes an error of a refusal.
func put(ctx context.Context, url string, token uint64, text string) error {
	status, body, err := do(ctx, http.MethodPut, url, token, text)
	switch {
	case err != nil:
		return err
	case status == http.StatusPreconditionFailed:
		return fmt.Errorf("%w: %s", ErrStale, body)
	case status != http.StatusNoContent:
		return fmt.Errorf("status %d: %s", status, body)
	}
	return nil
}

func do(ctx context.Context, method, url string, token uint64, text string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(text))
	if err != nil {
		return 0, "", err
	}
	if token != 0 {
		fencing.SetHeader(request.Header, token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

func keyStore() *store {
	client := data.Client()
	keys := Keys{Redis: client}
	return &store{
		name: "a Redis key",
		careful: func(ctx context.Context, l fencing.Leadership, text string) error {
			return keys.Write(ctx, "job:1", text, l.Token)
		},
		careless: func(ctx context.Context, text string) error { return client.HSet(ctx, "job:1", "value", text).Err() },
		read:     func(ctx context.Context) string { return client.HGet(ctx, "job:1", "value").Val() },
	}
}

func termStore(ctx context.Context) *store {
	GinkgoHelper()
	terms := Terms{DB: db}
	_, err := db.ExecContext(ctx, `INSERT INTO report (id) VALUES ('story')`)
	Expect(err).NotTo(HaveOccurred())
	return &store{
		name: "the term as a value to compare",
		begin: func(ctx context.Context, s fencing.Sidecar) error {
			_, err := terms.Claim(ctx, "story", s.Leadership)
			return err
		},
		careful: func(ctx context.Context, l fencing.Leadership, text string) error {
			return terms.Write(ctx, "story", text, l.Term)
		},
		careless: func(ctx context.Context, text string) error {
			_, err := db.ExecContext(ctx, `UPDATE report SET payload = $1 WHERE id = 'story'`, text)
			return err
		},
		read: func(ctx context.Context) string {
			return readText(ctx, `SELECT payload FROM report WHERE id = 'story'`)
		},
	}
}
