// Command holdfast runs and looks after nodes of the queue.
//
// # Commands
//
//	serve            a node, until a signal
//	demo             three nodes, clients, kill -9, and a count of what was lost
//	cluster local    three nodes on this machine, until a signal
//	cluster status   how the groups stand, as one node sees them
//	cluster members  the nodes and what they are in the groups
//	cluster transfer hand a group to another node
//	cluster accept-clock
//	                 say that the wall clocks are right
//	cluster remove   take a node out
//	cluster recover  go on with one stopped node after the majority was lost for good
//	leave            take the asked node out, and stop it
//	check, dump      the files of a node that is stopped
//	salvage          copies out of them what verifies
//	version
//
// # Settings
//
// A setting of serve is taken from the flag, else from the environment, else from the file of --config, else
// it is the default of node.Config. The file is YAML, its keys are the names of the flags; a key it does not
// know is refused.
//
// # Signals and exit codes
//
// The first SIGTERM or SIGINT stops a node in order: leadership is handed over, every publish is answered.
// The second one ends the process at once.
//
//	0    done, or stopped in order
//	1    failed
//	2    wrong usage or configuration; nothing was started
//	3    check, dump or salvage found damage
//	4    a node that ran could not go on, because its disk failed, was full or hung; the last line of the log
//	     names the file. What it acknowledged is safe on the others: start it again, on a disk that works
//	130  ended at once by SIGINT, 143 by SIGTERM
package main
