// Package conformance runs the suites of nats.go, unmodified, against Holdfast. It is a module of its own, so
// that what the suites and their tester need stays out of the product's go.mod.
//
// # How it works
//
// The suites ask a tester for the servers they need, over NATS (ntf, the test framework of nats.go).
// cmd/tester is that tester; package ntfbackend gives it nodes of ours where nats.go's own gives real
// JetStream servers. cmd/conformance builds suites and tester once, then runs every test in a process of
// its own: a test that panics on what is missing takes down only itself.
//
//	make conformance            every test in scope
//	make conformance CORE=1     the tests that must never fail
//	make conformance ARGS="-run KeyValue -jobs 2 -v"
//
// # Scope
//
// All of nats.go/jetstream/test, and of nats.go/test the files js_test, kv_test, object_test,
// js_internal_test and norace_test; the rest of that package tests the client alone. compat_test waits for
// an outside driver.
//
//	classes.tsv    package, test, needs, features           what each test in scope needs and uses
//	expected.tsv   package, test, pass|fail|skip, reason    how it ends, and why if it does not pass
//
// needs and features are what the suites asked of a real server when they were run against one with its
// protocol trace on. Two words in them are ours: a test with the feature "core" must pass, and cannot be
// listed as failing; one that needs "quiet" measures time so closely that it runs alone, after the others.
//
// A result that expected.tsv does not expect is an error, be it a failure or a pass: the list only gets
// better, and says at any time what is missing. After a change for the better, correct the line, or run
// with -update.
package conformance
