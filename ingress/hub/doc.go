// Package hub embeds the nats-server that clients connect to. It is the only package of the product that
// imports nats-server.
//
// # Contract
//
// The server runs with JetStream off: the JetStream API is answered by the rest of ingress, through two
// connections per account that this package hands out.
//
//	connection  for                                            obtained by
//	client      everything inbound; routing subjects under     Hub.ConnectClient
//	            $JS.API, $KV and $OBJ
//	leaf        deliveries and everything with a $JS. reply    Hub.Leaf
//
// # The user's configuration file
//
// Config.ConfigFile is an ordinary nats-server configuration. It is checked by nats-server itself first, so
// that its mistakes are reported with file and line. Then:
//
//	setting                          what happens
//	jetstream                        read (Hub.JetStream), removed
//	accounts.X.jetstream             read (Account.JetStream, Account.Limits), removed
//	accounts.X.limits                max_connections and max_leafnodes grow by one: our own connections
//	accounts.X.users                 one service user is added, if authorization is on
//	authorization                    one service user for $G is added, if authorization is on
//	authorization.auth_callout       our users join auth_users
//	leafnodes                        our users join its authorization; a listener is added if it has none
//	listen, port, host, server_name  may be given in the file or in Config, not differently in both
//	cluster                          likewise for its name, listen and advertise; the other keys are kept
//	log_file, syslog                 have no effect: the server logs to Config.Log
//	operator, resolver, trusted_keys refused: service users cannot be added to a JWT configuration
//	mqtt                             refused: needs nats-server's own JetStream
//
// Everything else is kept. jetstream keys must go, and not only be switched off: a server without JetStream
// that finds one on an account imports $JS.API.> from its system account into that account, and so does one
// that has routes and no accounts at all (the latter is prevented by registering one unused account).
//
// Authorization is never turned on by this package: where everybody may connect, so do we, without
// credentials.
//
// # Leafnode listener
//
//	the file has                       our link connects
//	no leafnode listener               to one on loopback, ephemeral port, credentials for each account
//	a listener with authorization      to it, with users added to its list (a single user becomes a list)
//	a listener without authorization   to it, as the service user of the account
//
// # Routes
//
// Hub.SetRoutes replaces the explicit routes while the server runs, by an options reload with a freshly
// parsed configuration: nats-server has no narrower way. A reload checks every connected client's
// credentials again, which costs one bcrypt evaluation for each client with a bcrypt password; it is
// skipped if nothing changed. One explicit route from a new node to any member is enough, nats-server
// spreads the rest; an explicit one is retried for ever, a learned one is not, so every node should be told
// of every other.
//
// # Failure
//
// nats-server reports some failures (a port in use) by a fatal log line. Here that never ends the process:
// before the server is ready it becomes the error of Start, afterwards it goes to Config.OnFatal.
package hub
