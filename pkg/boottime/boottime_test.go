package boottime

import (
	"testing"
	"time"
)

func TestNowAdvancesWithRealTime(t *testing.T) {
	wall, boot := time.Now(), Now()
	for Now()-boot < 5*time.Millisecond {
	}
	if elapsed := time.Since(wall); elapsed < 4*time.Millisecond {
		t.Fatalf("boot time advanced 5ms while the monotonic clock advanced only %v", elapsed)
	}
}

func TestNowNeverGoesBack(t *testing.T) {
	last := Now()
	for range 1000 {
		next := Now()
		if next < last {
			t.Fatalf("went back from %v to %v", last, next)
		}
		last = next
	}
}
