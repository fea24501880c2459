package jepsen

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// Names of variants.
const (
	hitOne      = "one"
	hitAll      = "all"
	hitLeader   = "leader"
	hitFollower = "follower"

	cutBoth    = "both"
	cutUnheard = "unheard"
	cutDeaf    = "deaf"
	cutPair    = "pair"

	memberEmpty    = "empty"
	memberReplaced = "replaced"

	returnKilled = "killed"
	returnPaused = "paused"

	twinEmpty  = "empty"
	twinCopy   = "copy"
	twinPaused = "paused"

	fileFlipped = "flipped"
	fileRemoved = "removed"

	oldDisk        = "disk"
	oldChunks      = "chunks"
	oldPointer     = "pointer"
	oldIncarnation = "incarnation"
	oldManifest    = "manifest"
	oldNode        = "node"

	eioSync  = "sync"
	eioWrite = "write"
	eioLost  = "-lost" // and what was not synced is gone afterwards

	hangCut = "cut-off"

	clockJump    = "jump"
	clockStop    = "stop"
	clockYield   = "yield"
	clockAccept  = "accept"
	clockFrozen  = "frozen"
	clockCorrect = "correct"
)

// nemesis is one named fault.
type nemesis struct {
	// what says what it does, for people.
	what string
	// common ones are in the default set.
	common bool
	// disk: it needs disks of its own under the nodes.
	disk bool
	// slow: those must be disks that can be slow, hang and fail.
	slow bool
	// wall: wall clocks must be ones that can be moved.
	wall bool
	// takes: files of one node are lost. While another node is not well that would be
	// a majority's loss, which nothing is promised for: the step is left out then.
	takes bool
	// alone: that the others go on within a bound, or that a node leaves for good, is part of the fault. Each of the
	// others must have a vote then: it is left out, too, while one has not.
	alone bool
	// missing says why it cannot run; empty: it can.
	missing string
	// foreign says why it is not run on nats-server; empty: it is.
	foreign string
	// variants are what it does instead of one thing, by name: in turn, from one that the seed
	// decides. Those of asked are done only if somebody asks for them.
	variants, asked []string
	run             func(ctx context.Context, w *world, s Step) error
}

// nemeses are all faults by name.
func nemeses() map[string]nemesis {
	all := membershipFaults()
	maps.Copy(all, coreFaults())
	return all
}

func coreFaults() map[string]nemesis {
	return map[string]nemesis{
		"kill":      {what: "SIGKILL of one node, up to three times", common: true, run: killOne},
		"kill-all":  {what: "SIGKILL of all nodes at once", common: true, run: killAll},
		"power":     {what: "power cut of one node: all it had not synced is lost", common: true, disk: true, run: powerOne},
		"power-all": {what: "power cut of all nodes at once", common: true, disk: true, run: powerAll},
		"part-kill": {
			what:   "one node cut off, another loses power, then both are the majority against the third",
			common: true, disk: true, alone: true, run: partKill,
		},
		"pause-kill": {
			what:   "the same with SIGSTOP in place of the cuts",
			common: true, disk: true, alone: true, run: pauseKill,
		},
		"pause":   {what: "SIGSTOP of the leader for 10 to 30 s", common: true, run: pauseLeader},
		"part":    {what: "a node cut off, both ways or one way, or two nodes cut off from each other", common: true, variants: []string{cutBoth, cutUnheard, cutDeaf, cutPair}, run: partition},
		"reset":   {what: "connections of one node reset, again and again", common: true, run: resets},
		"packet":  {what: "delays of 100 ± 50 ms on all links, or those of one node", common: true, variants: []string{hitOne, hitAll}, run: delays},
		"rolling": {what: "every node restarted by SIGTERM, one after another", common: true, run: rolling},
		"mix":     {what: "one node cut off, another killed, the rest slow", common: true, run: mixed},
		"member":  {what: "a node is replaced by one of another name, or comes back under its own without its files", common: true, takes: true, variants: []string{memberEmpty, memberReplaced}, run: member},

		"bitflip":  {what: "about two bits flipped in a file of one killed node", common: true, takes: true, run: bitflip},
		"truncate": {what: "the end of a file of one killed node cut off", common: true, takes: true, run: truncate},
		"snapshot": {what: "snapshot or pointer file of one killed node damaged or removed", common: true, takes: true, variants: []string{fileFlipped, fileRemoved}, run: snapshot},
		"timetravel": {
			what:   "all files of one node, half of one, or one of them alone put back to what they were a while ago",
			common: true, takes: true, run: timeTravel,
			variants: []string{oldDisk, oldChunks, oldPointer, oldIncarnation, oldManifest, oldNode},
		},
		"disk-full": {
			what:   "the disk of the leader, a follower or all short of space, then full, then freed",
			common: true, disk: true, alone: true, variants: []string{hitLeader, hitFollower, hitAll}, run: diskFull,
		},
		"slow-fsync": {
			what:   "every fsync of the leader takes seconds, longer than the fault lasts perhaps",
			common: true, disk: true, slow: true, alone: true, run: slowSync,
		},

		"eio": {
			what:   "writes or syncs of the leader or another node fail with EIO: it must end with exit code 4",
			common: true, disk: true, slow: true, alone: true, run: failingDisk,
			variants: []string{eioSync, eioWrite, eioSync + eioLost, eioWrite + eioLost},
		},
		"hang": {
			what:   "the disk of the leader or a follower hangs for 45 s, or a follower is cut off for 60 s",
			common: true, disk: true, slow: true, alone: true, run: hangingDisk,
			variants: []string{hitLeader, hitFollower, hangCut},
		},
		"clock": {
			what:   "wall clocks of one node and of all moved by 1 h or 1 year, and back, or still, with restarts in between",
			common: true, wall: true, alone: true, run: clocks,
			variants: []string{clockJump, clockStop, clockYield, clockAccept, clockFrozen}, asked: []string{clockCorrect},
		},
	}
}

// Describe lists what each nemesis does, by name.
func Describe() map[string]string {
	out := make(map[string]string)
	for name, n := range nemeses() {
		out[name] = n.what
		if all := append(slices.Clone(n.variants), n.asked...); len(all) > 0 {
			out[name] += " (variants: " + strings.Join(all, ", ") + ")"
		}
		if n.missing != "" {
			out[name] += " (not run: " + n.missing + ")"
		}
	}
	return out
}

// MovesClocks says whether a nemesis, named as ParseNemeses returns it, needs wall clocks that can be moved.
func MovesClocks(name string) bool { return nemeses()[baseOf(name)].wall }

func sortedNames(m map[string]nemesis) []string { return slices.Sorted(maps.Keys(m)) }

// defaults are the names of the common ones.
func defaults() []string {
	var out []string
	all := nemeses()
	for _, name := range sortedNames(all) {
		if all[name].common {
			out = append(out, name)
		}
	}
	return out
}
