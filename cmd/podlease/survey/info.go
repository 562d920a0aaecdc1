package survey

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// oldestMajor is the oldest major version of Redis that is tried in tests.
const oldestMajor = 7

// info tells what has no bearing on whether the node is counted.
func (e *examination) info(ctx context.Context) {
	client, err := connect(ctx, e.cfg)
	if err != nil {
		e.health.add("version", Warning, err.Error(), "")
		return
	}
	defer client.Close()
	text, err := client.Info(ctx).Result()
	if err != nil {
		e.health.add("version", Warning, fmt.Sprintf("it does not tell what it is: %v", err), "let the user run INFO (+info)")
		return
	}
	fields := parseInfo(text)
	e.version(fields)
	e.persistence(fields)
}

func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			fields[name] = value
		}
	}
	return fields
}

func (e *examination) version(fields map[string]string) {
	kind, version := "Redis", fields["redis_version"]
	if v := fields["valkey_version"]; v != "" {
		kind, version = "Valkey", v
	}
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldestMajor {
		e.health.add("version", Warning, kind+" "+version, fmt.Sprintf("older than what podlease is tried with: use %d or later", oldestMajor))
		return
	}
	e.health.add("version", Fit, kind+" "+version, "")
}

// persistence is told, and not judged: the quarantine is there for a node that forgets.
func (e *examination) persistence(fields map[string]string) {
	found := "no append-only file"
	if fields["aof_enabled"] == "1" {
		found = "an append-only file"
	}
	e.health.add("persistence", Fit, found+"; what a restart forgets is covered by the quarantine", "")
}
