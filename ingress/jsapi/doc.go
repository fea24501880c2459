// Package jsapi is JetStream on the wire as pure values.
package jsapi
