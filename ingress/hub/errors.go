package hub

import "errors"

var (
	// ErrConfig marks every error about the configuration: a bad Config field, a conflict between Config and
	// the configuration file, or a setting of the file that cannot be supported.
	ErrConfig = errors.New("hub: configuration")

	// ErrStart marks a failure of nats-server to start, for example because a port is in use.
	ErrStart = errors.New("hub: nats-server did not start")

	// ErrNoAccount is returned for an account the hub does not serve: it is not in the configuration, it is
	// the system account, or no client can be in it.
	ErrNoAccount = errors.New("hub: account is not served")

	// ErrNoRoutes is returned by SetRoutes of a hub that has no route listener.
	ErrNoRoutes = errors.New("hub: no route listener is configured")

	// ErrStopped is returned by methods of a hub after Stop.
	ErrStopped = errors.New("hub: stopped")
)
