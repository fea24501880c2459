// Command differential runs the comparison with JetStream for a number of seeds; see package differential.
//
//	-seeds N     how many seeds, from -first on (make differential SEEDS=N)
//	-steps N     operations of each
//	-shrink D    how long to look for a shorter script that shows the same difference
//	-replay F    the script of a file, as a run that found a difference left it
//	-dir D       where data and such files go
//	-v           every step as it runs
//
// It exits with 0 if nothing differed but what package differential explains, with 1 if something did, and with 2
// if it could not run.
package main
