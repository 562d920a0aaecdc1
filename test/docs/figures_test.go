package docs_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/podlease/podlease/pkg/settings"
)

// The figures of docs/guarantees.md are those of the default settings.
func TestFiguresFollowFromTheDefaults(t *testing.T) {
	var lease settings.Lease
	flags := settings.NewFlags("figures")
	lease.AddFlags(flags)
	if err := flags.Parse([]string{"--lock=figures"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Complete(flags); err != nil {
		t.Fatal(err)
	}
	deadline := lease.TTL - lease.TTL/100
	active := deadline - lease.StopBudget
	follow := []string{
		seconds(lease.TTL), seconds(lease.RenewInterval), seconds(lease.StopBudget), seconds(lease.Quarantine), seconds(deadline),
		seconds(active),                                  // not active after the last renewal
		seconds(active - lease.RenewInterval),            // the same, when one was just due
		seconds(lease.TTL - lease.RenewInterval),         // the keys run out
		seconds(lease.RenewInterval + lease.NodeTimeout), // a loss is noticed
		seconds(lease.NodeTimeout),
		"1 s", "25 s", // a label's second, and --drain-timeout
	}
	figures := regexp.MustCompile(`\b[0-9.]+ m?s\b`).FindAllString(read(t, root+"/docs/guarantees.md"), -1)
	if len(figures) < 20 {
		t.Fatalf("%d figures, which is fewer than there were", len(figures))
	}
	for _, figure := range figures {
		if !slices.Contains(follow, figure) {
			t.Errorf("%s does not follow from the defaults, which make %v", figure, follow)
		}
	}
}

// seconds writes a duration as the documentation does.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%g s", d.Seconds())
}
