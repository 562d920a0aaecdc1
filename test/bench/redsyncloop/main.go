// Command redsyncloop holds a lock with redsync, or waits for it, for as long as it
// runs: the least that a program has to do to get what the sidecar does.
//
//	redsyncloop LOCK TTL ADDR,ADDR,…
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "redsyncloop: %v\n", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%d arguments: want LOCK TTL ADDR,ADDR,…", len(args))
	}
	ttl, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	var pools []redsyncredis.Pool
	for addr := range strings.SplitSeq(args[2], ",") {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: addr})))
	}
	mutex := redsync.New(pools...).NewMutex(args[0], redsync.WithExpiry(ttl), redsync.WithFailFast(true))
	for {
		if mutex.LockContext(ctx) == nil {
			hold(ctx, mutex, ttl/5)
		}
	}
}

// hold renews the lock until that fails.
func hold(ctx context.Context, mutex *redsync.Mutex, interval time.Duration) {
	for range time.Tick(interval) {
		if ok, _ := mutex.ExtendContext(ctx); !ok {
			return
		}
	}
}
