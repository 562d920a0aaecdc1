package recipes

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	_ "embed" // the script
)

//go:embed key.lua
var keyScript string

var writeKey = redis.NewScript(keyScript)

// Keys writes Redis keys that remember the token of their last write. Redis runs a
// script as one step. It does not keep a token that it has not kept the data with: after
// a fail-over to a replica that lags, both are old.
type Keys struct{ Redis redis.Scripter }

// Write writes a key; a term may do it any number of times.
func (k Keys) Write(ctx context.Context, key, value string, token uint64) error {
	written, err := writeKey.Run(ctx, k.Redis, []string{key}, token, value).Bool()
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	if !written {
		return ErrStale
	}
	return nil
}
