// Command jepsen runs the workload of testenv/jepsen against one or more systems, with
// the same seed and the same faults, and prints what it found.
//
//	go run ./testenv/jepsen/cmd/jepsen --system holdfast --seed 1 --minutes 3
//	go run ./testenv/jepsen/cmd/jepsen --system holdfast,default,always --nemesis power-all,part-kill
//	go run ./testenv/jepsen/cmd/jepsen --nemesis help
//
// The exit status is 1 if a run could not be made, or if Holdfast lost something that it
// had acknowledged or showed anything else that must not be. What the other systems show
// is reported, not judged.
package main
