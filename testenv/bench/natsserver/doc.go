// Command natsserver runs nats-server, in the version of go.mod, with one configuration file: the other side
// of the comparison, as a process of its own and with nothing around it.
//
//	natsserver FILE
//
// It stops on SIGTERM or SIGINT as nats-server does.
package main
