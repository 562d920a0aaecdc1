package recipes

import (
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestRecipes(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Fencing recipes")
}

var (
	db   *sql.DB
	data *redistest.Server // the one that data is written to, not a node of the lock
)

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(behaviour.Patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	if _, err := postgresPrograms(); err != nil {
		if os.Getenv("CI") != "" {
			Fail(err.Error())
		}
		Skip(err.Error())
	}
	db = startPostgres(ctx)
	for _, schema := range []string{RowSchema, FenceSchema, TermSchema} {
		_, err := db.ExecContext(ctx, schema)
		Expect(err).NotTo(HaveOccurred())
	}
	data = redistest.Start(GinkgoTB())
})

// holder is a candidate of the lock: a sidecar process.
func holder(program sidecartest.Program, name string, nodes []*redistest.Server) *sidecartest.Sidecar {
	GinkgoHelper()
	return program.Start(GinkgoTB(), sidecartest.Options{
		Name: name, Lock: "orders", Redis: redistest.URLs(nodes), Args: []string{"--ttl=5s", "--node-timeout=500ms"},
	})
}
