package link

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pass lets d go by; in a synctest bubble that is virtual time.
func pass(d time.Duration) { <-time.After(d) }
