package netcut

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// dialVariable makes TestDialler dial an address, send a line, and print what comes back.
const dialVariable = "NETCUT_TEST_DIAL"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDialler is the other process of TestProcessesAreToldApart.
func TestDialler(t *testing.T) {
	addr := os.Getenv(dialVariable)
	if addr == "" {
		t.Skip("runs in a process of its own")
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, "hello\n")
	if _, err := io.Copy(os.Stdout, c); err != nil {
		t.Fatal(err)
	}
}

// bench is a proxy before the port of node b; this process is node a.
type bench struct {
	t       *testing.T
	net     *Net
	addr    string
	arrived chan net.Conn
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, net: New(), arrived: make(chan net.Conn, 4)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.addr = freeAddress(t)
	if err := b.net.Proxy(t.Context(), "b", b.addr, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	b.net.Process("a", os.Getpid())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.arrived <- c
		}
	}()
	t.Cleanup(func() {
		if err := b.net.Close(); err != nil {
			t.Error(err)
		}
		_ = l.Close()
		<-done
	})
	return b
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (b *bench) set(from, to string, s State) {
	b.t.Helper()
	if err := b.net.Set(from, to, s); err != nil {
		b.t.Fatal(err)
	}
}

// dial connects as node a.
func (b *bench) dial() net.Conn {
	b.t.Helper()
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

// pair connects, and returns both ends.
func (b *bench) pair() (a, server net.Conn) {
	b.t.Helper()
	a = b.dial()
	select {
	case server = <-b.arrived:
	case <-time.After(10 * time.Second):
		b.t.Fatal("the connection did not arrive")
	}
	b.t.Cleanup(func() { _ = server.Close() })
	return a, server
}

// refused asserts that a new connection does not last. Its end can come before connect has returned: a reset that
// follows the handshake at once is the error of connect then.
func (b *bench) refused(who string) {
	b.t.Helper()
	c, err := net.Dial("tcp", b.addr)
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		b.t.Fatalf("%s: %v, want a connection that ends", who, err)
	}
	defer func() { _ = c.Close() }()
	ended(b.t, who, c)
}

// ended asserts that the other side has ended the connection.
func ended(t *testing.T, who string, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s reads %v, want the end", who, err)
	}
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c net.Conn, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// silence asserts that nothing comes for a while, the end neither.
func silence(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(150 * time.Millisecond))
	n, err := c.Read(make([]byte, 16))
	if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

func TestBytesPassAndAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a, server := b.pair()
	send(t, a, "ping")
	expect(t, server, "ping")
	send(t, server, "reply")
	expect(t, a, "reply")
	if there, back := b.net.Bytes("a", "b"), b.net.Bytes("b", "a"); there != 4 || back != 5 {
		t.Errorf("counted %d and %d bytes, want 4 and 5", there, back)
	}
	_ = a.Close()
	_ = server.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the other side closed: %v, want EOF", err)
	}
}

func TestCutOneWayHoldsWhatIsSentThatWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a, server := b.pair()
	b.set("a", "b", State{Mode: Cut})
	send(t, a, "held")
	send(t, server, "passes")
	expect(t, a, "passes")
	silence(t, server)
	send(t, a, ", too")
	_ = a.Close() // its end is held as well
	silence(t, server)
	b.net.Heal()
	expect(t, server, "held, too")
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the heal: %v, want EOF", err)
	}
}

func TestNewConnectionsHangUntilBothWaysAreOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.set("b", "a", State{Mode: Cut})
	a := b.dial()
	send(t, a, "early")
	select {
	case <-b.arrived:
		t.Fatal("a connection came through a cut link")
	case <-time.After(150 * time.Millisecond):
	}
	b.net.Heal()
	select {
	case server := <-b.arrived:
		expect(t, server, "early")
		_ = server.Close()
	case <-time.After(10 * time.Second):
		t.Fatal("no connection after the heal")
	}
}

func TestResetEndsConnections(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a, server := b.pair()
	b.set("b", "a", State{Mode: Reset})
	ended(t, "side a", a)
	ended(t, "side b", server)
	b.refused("a new connection")
	b.net.Heal()
	a, server = b.pair()
	send(t, a, "again")
	expect(t, server, "again")
}

func TestDelayKeepsOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a, server := b.pair()
	const delay, jitter = 120 * time.Millisecond, 60 * time.Millisecond
	b.set("a", "b", State{Delay: delay, Jitter: jitter})
	start := time.Now()
	for range 50 {
		send(t, a, "0123456789")
	}
	for range 50 {
		expect(t, server, "0123456789")
	}
	if took := time.Since(start); took < delay-jitter {
		t.Errorf("took %v, want at least %v", took, delay-jitter)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.net.Process("a", 0)
	b.refused("a stranger")
	if got := b.net.Unknown(); got != 1 {
		t.Errorf("counted %d strangers, want 1", got)
	}
}

func TestProcessesAreToldApart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^TestDialler$")
	cmd.Env = append(os.Environ(), dialVariable+"="+b.addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.net.Process("c", cmd.Process.Pid)
	server := <-b.arrived
	expect(t, server, "hello\n")
	b.set("a", "b", State{Mode: Cut}) // another pair's
	b.set("b", "a", State{Mode: Cut})
	send(t, server, "to c\n")
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "to c\n" {
		t.Errorf("the process read %q, %v", line, err)
	}
	_ = server.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the process ended with %v", err)
	}
	if there, none := b.net.Bytes("c", "b"), b.net.Bytes("a", "b"); there != 6 || none != 0 {
		t.Errorf("counted %d bytes from c and %d from a, want 6 and 0", there, none)
	}
}

func TestDatagrams(t *testing.T) {
	t.Parallel()
	n := New()
	defer func() { _ = n.Close() }()
	var sockets []net.PacketConn
	var proxies []*net.UDPAddr
	for _, node := range []string{"a", "b"} {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pc.Close() })
		listen := freeAddress(t)
		if err := n.ProxyUDP(t.Context(), node, listen, pc.LocalAddr().String()); err != nil {
			t.Fatal(err)
		}
		to, err := net.ResolveUDPAddr("udp", listen)
		if err != nil {
			t.Fatal(err)
		}
		sockets, proxies = append(sockets, pc), append(proxies, to)
	}
	read := func(d time.Duration) string {
		buf := make([]byte, 16)
		_ = sockets[1].SetReadDeadline(time.Now().Add(d))
		k, _, err := sockets[1].ReadFrom(buf)
		if err != nil {
			return ""
		}
		return string(buf[:k])
	}
	write := func(pc net.PacketConn, text string) {
		t.Helper()
		if _, err := pc.WriteTo([]byte(text), proxies[1]); err != nil {
			t.Fatal(err)
		}
	}
	write(sockets[0], "one")
	if got := read(10 * time.Second); got != "one" {
		t.Errorf("read %q, want one", got)
	}
	if err := n.Set("a", "b", State{Mode: Cut}); err != nil {
		t.Fatal(err)
	}
	write(sockets[0], "lost")
	if got := read(150 * time.Millisecond); got != "" {
		t.Errorf("read %q over a cut link", got)
	}
	n.Heal()
	write(sockets[0], "two")
	if got := read(10 * time.Second); got != "two" {
		t.Errorf("read %q, want two", got)
	}
	stranger, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	write(stranger, "who")
	if got := read(150 * time.Millisecond); got != "" || n.Unknown() != 1 {
		t.Errorf("read %q from a stranger, counted %d", got, n.Unknown())
	}
}

// Severed, a port refuses, what was accepted ends, and other ports go on; the owner can still close its listener, and
// another can have the port then.
func TestSever(t *testing.T) {
	t.Parallel()
	accept := func(addr string) (l net.Listener, accepted chan net.Conn) {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		accepted = make(chan net.Conn, 1)
		go func() {
			defer close(accepted)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()
		return l, accepted
	}
	dial := func(l net.Listener, accepted chan net.Conn) (out, in net.Conn) {
		out, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		in = <-accepted
		t.Cleanup(func() { _, _ = out.Close(), in.Close() })
		send(t, out, "before\n")
		expect(t, in, "before\n")
		return out, in
	}
	l, accepted := accept("127.0.0.1:0")
	other, acceptedByOther := accept("127.0.0.1:0")
	out, in := dial(l, accepted)
	outOfOther, inOfOther := dial(other, acceptedByOther)
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("address %v", l.Addr())
	}
	port := addr.Port
	if err := Sever(port); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{out, in} {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes over a severed connection", n)
		}
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("a severed port accepts", c.Close())
	}
	send(t, outOfOther, "after\n")
	expect(t, inOfOther, "after\n")
	if err := Sever(port); !errors.Is(err, ErrNoListener) {
		t.Errorf("severed twice: %v", err)
	}
	for _, l := range []net.Listener{l, other} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	for range accepted {
		t.Error("accepted after it was severed")
	}
	for range acceptedByOther {
		t.Error("accepted twice")
	}
	again, closed := accept(l.Addr().String())
	dial(again, closed)
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	<-closed
}

func TestStatesAreChecked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state State
		good  bool
	}{
		{State{}, true},
		{State{Mode: Reset}, true},
		{State{Mode: Reset + 1}, false},
		{State{Mode: -1}, false},
		{State{Delay: time.Second, Jitter: time.Second}, true},
		{State{Delay: time.Second, Jitter: time.Second + 1}, false},
		{State{Delay: -1}, false},
		{State{Jitter: -1}, false},
	} {
		n := New()
		if err := n.Set("a", "b", tt.state); (err == nil) != tt.good || (err != nil && !errors.Is(err, ErrState)) {
			t.Errorf("%+v: %v", tt.state, err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFindInode(t *testing.T) {
	t.Parallel()
	const table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0 20\n" +
		"   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 22 1 0 20\n" +
		"   2: 0100007F:C351 0100007F:1F90 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20\n"
	for _, tt := range []struct {
		local, remote int
		want          string
	}{{50000, 8080, "22"}, {8080, 50000, "11"}, {50001, 8080, ""}, {50002, 8080, ""}} {
		if got := findInode([]byte(table), tt.local, tt.remote); got != tt.want {
			t.Errorf("%d to %d: %q, want %q", tt.local, tt.remote, got, tt.want)
		}
	}
}
