// Package record holds the words of the system: the values that cross its
// layers and the errors that do. It imports the standard library only, so that
// every layer may import it without learning of any other.
//
// # Serialized message
//
// A message is serialized once, by the leader that accepts it, and stored,
// replicated and delivered as those bytes (big-endian):
//
//	offset  size  field
//	0       8     time, nanoseconds since 1970, cluster time of the store
//	8       2     subject length s
//	10      4     header length h
//	14      s     subject
//	14+s    h     header block, as the publisher sent it, or empty
//	14+s+h  rest  payload
//
// The sequence is not part of it: it is the key.
//
// # Fixed rows
//
// StreamState, SubjectStat, ConsumerState and Pending have fixed binary forms
// (Append… and Parse… beside each type); their lengths are checked when parsed
// and a longer form is refused, so a format change needs a new format version.
package record
