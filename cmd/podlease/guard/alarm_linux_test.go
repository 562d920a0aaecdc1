package guard_test

import (
	"testing"
	"time"

	"github.com/podlease/podlease/cmd/podlease/guard"
	"github.com/podlease/podlease/pkg/boottime"
)

func TestTheAlarmRingsAtItsTimeOfTheBootClock(t *testing.T) {
	alarm, err := guard.NewBootAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer alarm.Close()
	for name, at := range map[string]time.Duration{
		"soon": boottime.Now() + 20*time.Millisecond, "passed": boottime.Now() - time.Hour, "before everything": -time.Hour,
	} {
		alarm.Set(boottime.Now() + time.Hour) // which is replaced
		alarm.Set(at)
		select {
		case <-alarm.Rings():
			if now := boottime.Now(); now < at {
				t.Errorf("%s: rang %v too early", name, at-now)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: did not ring", name)
		}
	}
}
