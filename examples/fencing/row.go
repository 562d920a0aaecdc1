package recipes

import (
	"context"
	"database/sql"
	"fmt"
)

// RowSchema makes a table whose rows remember the token of their last write. Tokens are
// below 2^53, so a bigint holds them.
const RowSchema = `CREATE TABLE job (
	id text PRIMARY KEY,
	payload text NOT NULL,
	last_token bigint NOT NULL
)`

// Several writes per term: the holder may write again with its token, hence <=.
const writeRow = `
INSERT INTO job (id, payload, last_token) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET payload = excluded.payload, last_token = excluded.last_token
WHERE job.last_token <= excluded.last_token`

// One write per term: a token that has written is used up, hence <. A holder that had no
// answer and sends its write again does not do it twice.
const writeRowOnce = `
INSERT INTO job (id, payload, last_token) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET payload = excluded.payload, last_token = excluded.last_token
WHERE job.last_token < excluded.last_token`

// Rows writes to that table. The comparison is in the statement that writes, so that the
// database makes them one step.
type Rows struct{ DB *sql.DB }

// Write writes a row; a term may do it any number of times.
func (r Rows) Write(ctx context.Context, id, payload string, token uint64) error {
	return changed(r.DB.ExecContext(ctx, writeRow, id, payload, token))
}

// WriteOnce writes a row; a term may do it once. ErrStale then says that the token is old
// or used: read the row to learn which.
func (r Rows) WriteOnce(ctx context.Context, id, payload string, token uint64) error {
	return changed(r.DB.ExecContext(ctx, writeRowOnce, id, payload, token))
}

// changed makes ErrStale of a statement that found nothing to change.
func changed(result sql.Result, err error) error {
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("count the rows written: %w", err)
	}
	if n == 0 {
		return ErrStale
	}
	return nil
}
