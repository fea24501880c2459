// Package link speaks the leafnode protocol to a nats-server (the hub). It sends what a client connection may
// not: messages whose reply starts with $JS., and messages that are routed by one subject and shown to the
// subscriber under another. It also learns who listens to what in the account.
//
// One Link serves one account of one hub. It uses the standard library only.
//
// # Wire
//
//	direction  line                                               meaning
//	hub → us   INFO {json}                                        first, and again at any time
//	us → hub   CONNECT {json}, PING                               once
//	hub → us   LS+ subject [queue weight] / LS- subject [queue]   interest of the account, cluster-wide
//	both       PING / PONG
//	us → hub   LMSG subject [reply] size                          message
//	           HMSG subject [reply] hdrsize size                  message with headers
//	           LMSG subject | queue size                          to the members of a queue group, too
//	           LMSG subject + reply queue size                    same with a reply (HMSG alike)
//	hub → us   LMSG, HMSG                                         not expected: skipped and counted
//	hub → us   -ERR 'text'                                        kept for Status; the hub may close then
//
// A delivery is a message with the reply ack@subject: the hub shows it to the subscriber of the routing
// subject (an inbox) under the subject after the @, with the reply before the @. It splits at the first @
// after the eighth dot, so ack must have at least eight, and must start with $JS.ACK.
//
// A subscriber in a queue group gets a message only if the message names its group; plain subscribers get
// either form. The hub reports nothing about a message that nobody listens to.
//
// A hub without JetStream denies the routing subjects under $JS.API, $KV and $OBJ on leafnode connections
// (visible ones are free). Version 2.15.3 enforces it for interest only, which never shows them; messages to
// them belong on a client connection all the same.
//
// # Sending
//
// Send, Deliver and DeliverQueue never wait for the network. They copy the message into a buffer; one
// goroutine writes whatever has gathered, so the number of writes falls as the load rises. Order is the
// order of the calls. The buffer is bounded (Config.PendingLimit): beyond it messages are refused with
// ErrOverflow and counted. Subjects, replies and queue names are checked for bytes that end a token, sizes
// against the hub's limits, because the hub answers a violation of either by closing the connection.
//
// While the link is down, messages given to Send are kept for Config.HoldFor, counted from when it went
// down, and sent after a reconnect within that time. Deliveries are refused with ErrDown, because the right
// to deliver was checked before the call and does not last; so is a message that is Fenced. Whatever is in
// the buffer or in the kernel when a connection breaks is lost, as it would be on the way to the client.
//
// A hub that stops reading delays what is in the buffer by up to Config.WriteTimeout, until the connection is
// given up. Before ctx ends, Flush says that nothing waits any more.
//
// # Interest
//
// Interest is unknown, which means present, until the PONG that follows CONNECT (the hub has sent the whole
// table by then) plus Config.Grace: a request and the subscription of its reply may have travelled on
// different connections. It is unknown again from a reconnect on. Replies under _R_. (service imports)
// always have interest. A request younger than Config.Grace has interest, too, unless the hub withdrew it after
// the request came: a client that unsubscribed is gone at once. If the table would outgrow
// Config.MaxInterest everything has interest until the next reconnect.
//
// # Goroutines
//
// Run is the reader and, between connections, the dialer; it starts one writer for each connection and
// waits for it.
package link
