package discovery

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"
	"go.uber.org/zap"
)

// Limits of the gossip layer that a Config is checked against.
const (
	// MaxNodeID is the longest node id, in bytes.
	MaxNodeID = serf.MaxNodeNameLength
	// MaxTagBytes is the most that a node's tags may take, encoded.
	MaxTagBytes = memberlist.MetaMaxSize
	// MaxSeeds is the most addresses in Config.Join.
	MaxSeeds = 64
)

// A Profile is a set of gossip timings.
type Profile string

const (
	// LAN detects a dead node in about 5 s on a local network and tolerates pauses; the default.
	LAN Profile = "lan"
	// Local is for tests on one machine: a dead node is noticed in about a second.
	Local Profile = "local"
)

// Config says who this node is and how it is found. The zero value of an optional field means its default.
type Config struct {
	// NodeID names this node in the cluster: letters, digits, '-' and '.', at most MaxNodeID. Required.
	NodeID string
	// BindAddr is where gossip is received, TCP and UDP, host:port; port 0 takes a free one. Required.
	BindAddr string
	// AdvertiseAddr is what others are told, host:port; default: BindAddr. It must not be unspecified
	// (0.0.0.0, ::). Port 0 means the bound port. A name is resolved once, at the start.
	AdvertiseAddr string
	// Join holds gossip addresses of other nodes, host:port, at most MaxSeeds; none is fine for the first
	// node.
	Join []string
	// Tags is what this node says about itself at first. Its NodeID may be empty or equal to NodeID.
	Tags Tags
	// SnapshotPath is a file that remembers members over restarts; empty: none.
	SnapshotPath string
	// SecretKey encrypts and authenticates gossip: 16, 24 or 32 bytes. Without one BindAddr must be loopback.
	SecretKey []byte
	// AcceptKeys are further keys that are accepted but not used for sending, while keys are being replaced.
	AcceptKeys [][]byte
	// Logger receives what happens, and what Serf and memberlist have to say. Required.
	Logger *zap.Logger
	// Profile chooses the timings; default LAN.
	Profile Profile
}

// timings are what a Profile stands for.
type timings struct {
	memberlist  func() *memberlist.Config
	suspicion   int           // multiplier of the time a silent node stays suspect
	probe       time.Duration // between two probes
	probeWait   time.Duration // for the answer to one
	gossip      time.Duration // between two rounds of gossip
	pushPull    time.Duration // between two full exchanges with a random member
	dial        time.Duration // deadline of a TCP exchange
	reclaim     time.Duration // how long an address must be dead before its name may move
	reconnect   time.Duration // between two attempts to reach a failed member
	broadcast   time.Duration // longest wait until our own news is on its way
	leaveDelay  time.Duration // pause after a leave, so that it travels before we stop answering
	reconcile   time.Duration // between two full reconciliations of the member list
	firstRetry  time.Duration // pause after the first failed join; doubled each time
	lastRetry   time.Duration // longest pause between two joins
	audit       time.Duration // between two checks of a disputed address
	keepRefusal time.Duration // how long a refusal stays in Conflicts after it last happened
}

// timingsOf returns the timings of a profile. The reclaim time of 30 s lets a node return under a new address
// long before Serf forgets the old one (24 h), yet not while it may only be slow.
func timingsOf(p Profile) (timings, error) {
	switch p {
	case LAN, "":
		return timings{
			memberlist: memberlist.DefaultLANConfig,
			suspicion:  4, probe: time.Second, probeWait: 500 * time.Millisecond,
			gossip: 200 * time.Millisecond, pushPull: 30 * time.Second, dial: 5 * time.Second,
			reclaim: 30 * time.Second, reconnect: 30 * time.Second,
			broadcast: 5 * time.Second, leaveDelay: time.Second,
			reconcile: 10 * time.Second, firstRetry: 250 * time.Millisecond, lastRetry: 5 * time.Second,
			audit: 5 * time.Second, keepRefusal: time.Minute,
		}, nil
	case Local:
		return timings{
			memberlist: memberlist.DefaultLocalConfig,
			suspicion:  2, probe: 200 * time.Millisecond, probeWait: 100 * time.Millisecond,
			gossip: 20 * time.Millisecond, pushPull: time.Second, dial: time.Second,
			reclaim: 300 * time.Millisecond, reconnect: time.Second,
			broadcast: time.Second, leaveDelay: 50 * time.Millisecond,
			reconcile:  500 * time.Millisecond,
			firstRetry: 20 * time.Millisecond, lastRetry: 200 * time.Millisecond,
			audit: 200 * time.Millisecond, keepRefusal: 5 * time.Second,
		}, nil
	}
	return timings{}, fmt.Errorf("%w: profile %q: want %q or %q", ErrConfig, p, LAN, Local)
}

// endpoints are the resolved addresses of a Config.
type endpoints struct {
	bind      netip.AddrPort
	advertise netip.AddrPort // port 0: the one that is bound
}

var nodeIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

// validate checks a Config and resolves its addresses. Every error names the setting and what is accepted.
func (c *Config) validate(ctx context.Context) (endpoints, error) {
	if !nodeIDPattern.MatchString(c.NodeID) || len(c.NodeID) > MaxNodeID {
		return endpoints{}, fmt.Errorf("%w: node id %q: want 1 to %d letters, digits, '-' and '.', "+
			"beginning with a letter or digit", ErrConfig, c.NodeID, MaxNodeID)
	}
	if c.Tags.NodeID != "" && c.Tags.NodeID != c.NodeID {
		return endpoints{}, fmt.Errorf("%w: the tags' node id is %q, the node's %q: want one",
			ErrConfig, c.Tags.NodeID, c.NodeID)
	}
	if c.Logger == nil {
		return endpoints{}, fmt.Errorf("%w: logger is nil", ErrConfig)
	}
	if err := c.validateKeys(); err != nil {
		return endpoints{}, err
	}
	if err := validateSeeds(c.Join); err != nil {
		return endpoints{}, err
	}
	if err := c.validateSnapshot(); err != nil {
		return endpoints{}, err
	}
	return c.resolve(ctx)
}

// validateSnapshot opens the file once: Serf leaks a goroutine when it cannot.
func (c *Config) validateSnapshot() error {
	if c.SnapshotPath == "" {
		return nil
	}
	f, err := os.OpenFile(c.SnapshotPath, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("%w: snapshot path: %w", ErrConfig, err)
	}
	return nil
}

func (c *Config) validateKeys() error {
	if len(c.SecretKey) == 0 && len(c.AcceptKeys) > 0 {
		return fmt.Errorf("%w: accept keys without a secret key", ErrConfig)
	}
	keys := c.AcceptKeys
	if len(c.SecretKey) > 0 {
		keys = append(slices.Clone(keys), c.SecretKey)
	}
	for _, k := range keys {
		if err := memberlist.ValidateKey(k); err != nil {
			return fmt.Errorf("%w: gossip key of %d bytes: want 16, 24 or 32", ErrConfig, len(k))
		}
	}
	return nil
}

func validateSeeds(seeds []string) error {
	if len(seeds) > MaxSeeds {
		return fmt.Errorf("%w: %d addresses to join: want at most %d", ErrConfig, len(seeds), MaxSeeds)
	}
	for _, s := range seeds {
		host, port, err := net.SplitHostPort(s)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || perr != nil || n == 0 {
			return fmt.Errorf("%w: address to join %q: want host:port", ErrConfig, s)
		}
	}
	return nil
}

// resolve turns the two addresses into numbers and applies the rules that need them.
func (c *Config) resolve(ctx context.Context) (endpoints, error) {
	bind, err := resolveAddr(ctx, c.BindAddr)
	if err != nil {
		return endpoints{}, fmt.Errorf("%w: bind address %q: %w", ErrConfig, c.BindAddr, err)
	}
	if len(c.SecretKey) == 0 && !bind.Addr().IsLoopback() {
		return endpoints{}, fmt.Errorf("%w: bind address %q can be reached from the network, "+
			"but there is no secret key: give one or bind a loopback address", ErrConfig, c.BindAddr)
	}
	advertise := netip.AddrPortFrom(bind.Addr(), 0)
	if c.AdvertiseAddr != "" {
		if advertise, err = resolveAddr(ctx, c.AdvertiseAddr); err != nil {
			return endpoints{}, fmt.Errorf("%w: advertise address %q: %w", ErrConfig, c.AdvertiseAddr, err)
		}
	}
	if advertise.Addr().IsUnspecified() {
		return endpoints{}, fmt.Errorf("%w: advertise address %s means every interface: "+
			"give the address at which others reach this node", ErrConfig, advertise.Addr())
	}
	return endpoints{bind: bind, advertise: advertise}, nil
}

// resolveAddr resolves host:port; the gossip layer itself takes numbers only.
func resolveAddr(ctx context.Context, addr string) (netip.AddrPort, error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return netip.AddrPort{}, fmt.Errorf("want host:port, %q", addr)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("want a port from 0 to 65535, not %q", portText)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), uint16(port)), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(ips[0].Unmap(), uint16(port)), nil
}

// serfConfig builds the configuration of the two libraries. Events, delegates and transport are set by the
// caller.
func (c *Config) serfConfig(t *timings, tags map[string]string, log io.Writer) (*serf.Config, error) {
	ml := t.memberlist()
	ml.SuspicionMult = t.suspicion
	ml.ProbeInterval, ml.ProbeTimeout = t.probe, t.probeWait
	ml.GossipInterval, ml.PushPullInterval = t.gossip, t.pushPull
	ml.TCPTimeout, ml.DeadNodeReclaimTime = t.dial, t.reclaim
	ml.LogOutput = log
	if len(c.SecretKey) > 0 {
		ring, err := memberlist.NewKeyring(c.AcceptKeys, c.SecretKey)
		if err != nil {
			return nil, fmt.Errorf("%w: gossip keys: %w", ErrConfig, err)
		}
		ml.Keyring = ring
	}

	sc := serf.DefaultConfig()
	sc.NodeName = c.NodeID
	sc.Tags = tags
	sc.MemberlistConfig = ml
	sc.LogOutput = log
	sc.SnapshotPath = c.SnapshotPath
	sc.RejoinAfterLeave = true
	sc.ValidateNodeNames = true
	sc.DisableCoordinates = true
	// Serf's own resolution stops the side that a majority does not know, which may be the one with the data.
	sc.EnableNameConflictResolution = false
	sc.ReconnectInterval = t.reconnect
	sc.BroadcastTimeout = t.broadcast
	sc.LeavePropagateDelay = t.leaveDelay
	return sc, nil
}
