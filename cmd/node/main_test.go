package node

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// memberlist's own end a moment after its shutdown.
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).streamListen"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).packetListen"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).packetHandler"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).triggerFunc"),
	)
}
