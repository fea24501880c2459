// Package api answers $JS.API requests: what each call reads, judges and plans,
// and the JSON it is answered with. It knows plans and wire values only; who may
// answer, and when, is decided above it.
//
// # Contract
//
// Reads are taken from the applied state and answered at once. Changes are
// operations of the group's plan: they are answered when the envelope with their
// consequences is applied, and a purge of many messages goes on in bounded steps,
// so that no request holds up a group.
package api
