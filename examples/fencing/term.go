package recipes

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/podlease/podlease/pkg/fencing"
)

// TermSchema makes a table whose rows remember which term may write them.
const TermSchema = `CREATE TABLE report (
	id text PRIMARY KEY,
	payload text NOT NULL DEFAULT '',
	term text NOT NULL DEFAULT ''
)`

// Terms writes to that table with nothing but comparisons for equality. It needs no order
// and so no fencing token, and fits whatever can compare and set: an ETag with If-Match,
// a resourceVersion, a version column.
type Terms struct{ DB *sql.DB }

// Claim makes the caller's term the one that may write the row, and returns it. The order
// matters: read, then ask whether still active, then swap. Who is paused after having
// asked swaps what it had read before, which fails when another term has claimed since.
func (t Terms) Claim(ctx context.Context, id string, leadership func(context.Context) (fencing.Leadership, error)) (term string, err error) {
	var old string
	if err := t.DB.QueryRowContext(ctx, `SELECT term FROM report WHERE id = $1`, id).Scan(&old); err != nil {
		return "", fmt.Errorf("report %s: %w", id, err)
	}
	l, err := leadership(ctx)
	if err != nil {
		return "", err
	}
	if !l.Active() {
		return "", fmt.Errorf("report %s: not active: %s", id, l.Reason)
	}
	if err := changed(t.DB.ExecContext(ctx, `UPDATE report SET term = $3 WHERE id = $1 AND term = $2`, id, old, l.Term)); err != nil {
		return "", err
	}
	return l.Term, nil
}

// Write writes the row, if the term that claimed it is still the last that did.
func (t Terms) Write(ctx context.Context, id, payload, term string) error {
	return changed(t.DB.ExecContext(ctx, `UPDATE report SET payload = $3 WHERE id = $1 AND term = $2`, id, term, payload))
}
