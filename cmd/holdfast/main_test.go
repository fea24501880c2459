package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes the test binary a node when it is started like one: the nodes of a local cluster are
// processes of the running program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		main()
	}
	goleak.VerifyTestMain(m,
		// memberlist's own end a moment after its shutdown.
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).streamListen"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).packetListen"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).packetHandler"),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).triggerFunc"),
	)
}
