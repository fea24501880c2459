//go:build conformance_deps

package conformance

// The suites are packages of tests only, so nothing but this file keeps what they import in go.mod. It is
// never built: the build tag is for go mod tidy, which looks at every tag.
import (
	_ "github.com/golang/protobuf/proto"
	_ "github.com/nats-io/jwt/v2"
	_ "github.com/nats-io/nats.go/jetstream"
	_ "github.com/synadia-io/orbit.go/ntf"
	_ "github.com/synadia-io/orbit.go/ntf-client"
	_ "google.golang.org/protobuf/proto"
)
