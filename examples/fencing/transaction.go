package recipes

import (
	"context"
	"database/sql"
	"fmt"
)

// FenceSchema makes a table with one row for each lock, for all that the lock protects.
const FenceSchema = `CREATE TABLE fence (
	lock text PRIMARY KEY,
	last_token bigint NOT NULL
)`

// The row stays locked until the transaction ends, so that the transactions of one lock
// come one after the other and a newer token cannot slip in between.
const raiseFence = `
INSERT INTO fence (lock, last_token) VALUES ($1, $2)
ON CONFLICT (lock) DO UPDATE SET last_token = excluded.last_token
WHERE fence.last_token <= excluded.last_token`

// Fenced runs transactions that only the newest holder of a lock may make.
type Fenced struct {
	DB   *sql.DB
	Lock string
}

// Do runs write in a transaction that begins with the comparison. With a token in each
// row instead, an old holder can still write the rows that the new one has not touched.
//
// A new holder calls it at the beginning of its term, with a write that does nothing if
// need be: from then on the old one is shut out.
func (f Fenced) Do(ctx context.Context, token uint64, write func(*sql.Tx) error) error {
	tx, err := f.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := changed(tx.ExecContext(ctx, raiseFence, f.Lock, token)); err != nil {
		return fmt.Errorf("lock %s: %w", f.Lock, err)
	}
	if err := write(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
