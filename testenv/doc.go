// Package testenv is what tests of the whole system stand on; nothing but tests imports it.
//
// The architecture itself is tested here too (arch_test.go): who may import what, how large a file may be,
// what lies at the top level, that every package states its contract, and that documents name things that
// exist.
package testenv
