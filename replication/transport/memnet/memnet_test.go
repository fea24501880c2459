package memnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-mq/holdfast/replication/transport/memnet"
)

// pair returns both sides of a connection from a to b.
func pair(t *testing.T, f *memnet.Fabric) (client, server net.Conn) {
	t.Helper()
	l, err := f.Host("b").Listen("b:1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = f.Host("a").Dial(t.Context(), "b:1")
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v; want %q", b, err, want)
	}
}

func TestConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t, memnet.New())
		write(t, client, "ping")
		expect(t, server, "ping")
		write(t, server, "pong")
		write(t, server, "!")
		server.Close()
		expect(t, client, "pong!")
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("after the end: %v, want EOF", err)
		}
		if _, err := client.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("write to a closed side: %v, want ECONNRESET", err)
		}
		client.Close()
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("own closed connection: %v, want net.ErrClosed", err)
		}
	})
}

func TestDeadlineMovesUnderARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := pair(t, memnet.New())
		start := time.Now()
		_ = client.SetReadDeadline(start.Add(time.Hour))
		go func() {
			<-time.After(time.Second)
			_ = client.SetReadDeadline(time.Now().Add(time.Second))
		}()
		_, err := client.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Fatalf("read: %v after %v, want the deadline after 2s", err, time.Since(start))
		}
	})
}

func TestWriteWaitsAtTheBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := pair(t, memnet.New())
		_ = client.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := client.Write(make([]byte, memnet.Buffer)); n != memnet.Buffer || err != nil {
			t.Fatalf("a full buffer: %d, %v", n, err)
		}
		if n, err := client.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("one more: %d, %v, want a deadline", n, err)
		}
		_ = client.SetWriteDeadline(time.Time{})
		done := make(chan error, 1)
		go func() {
			_, err := client.Write([]byte("x"))
			done <- err
		}()
		synctest.Wait()
		_, _ = io.ReadFull(server, make([]byte, memnet.Buffer))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		expect(t, server, "x")
	})
}

func TestCutHoldsAndHealDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := memnet.New()
		client, server := pair(t, f)
		f.Cut("a", "b")
		write(t, client, "held")
		client.Close()
		_ = server.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read over a cut: %v, want a deadline", err)
		}
		_ = server.SetReadDeadline(time.Time{})
		go func() {
			<-time.After(time.Second)
			f.Heal("a", "b")
		}()
		expect(t, server, "held")
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("after the held bytes: %v, want EOF", err)
		}
	})
}

func TestCutIsOneDirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := memnet.New()
		client, server := pair(t, f)
		f.Cut("a", "b")
		write(t, server, "back")
		expect(t, client, "back")
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := memnet.New()
		client, server := pair(t, f)
		start := time.Now()
		f.Delay("a", "b", 3*time.Second)
		write(t, client, "slow")
		f.Delay("a", "b", 0)
		write(t, client, "fast")
		expect(t, server, "slowfast")
		if d := time.Since(start); d != 3*time.Second {
			t.Fatalf("arrived after %v, want 3s and in order", d)
		}
	})
}

func TestDropAndCrash(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fault  func(*memnet.Fabric)
		listen bool // the listener lives on
	}{
		{"drop", func(f *memnet.Fabric) { f.Drop("b", "a") }, true},
		{"crash", func(f *memnet.Fabric) { f.Crash("b") }, false},
		{"drop others", func(f *memnet.Fabric) { f.Drop("a", "c") }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := memnet.New()
				client, server := pair(t, f)
				l, err := f.Host("b").Listen("b:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				tc.fault(f)
				_, werr := client.Write([]byte("x"))
				_ = client.SetReadDeadline(time.Now().Add(time.Second))
				_ = server.SetReadDeadline(time.Now().Add(time.Second))
				_, cerr := client.Read(make([]byte, 1))
				_, serr := server.Read(make([]byte, 1))
				broken := errors.Is(werr, syscall.ECONNRESET) && errors.Is(cerr, syscall.ECONNRESET) &&
					errors.Is(serr, syscall.ECONNRESET)
				if broken != (tc.name != "drop others") {
					t.Fatalf("write %v, reads %v, %v", werr, cerr, serr)
				}
				_, derr := f.Host("a").Dial(t.Context(), l.Addr().String())
				if refused := errors.Is(derr, syscall.ECONNREFUSED); refused == tc.listen {
					t.Fatalf("dial: %v, listener lives: %v", derr, tc.listen)
				}
			})
		})
	}
}

func TestDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := memnet.New()
		a, b := f.Host("a"), f.Host("b")
		if _, err := a.Dial(t.Context(), "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("nobody listens: %v", err)
		}
		if _, err := a.Listen("b:1"); err == nil {
			t.Fatal("a host listened on another's address")
		}
		l, err := b.Listen("b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := b.Listen("b:1"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("address in use: %v", err)
		}
		f.Cut("b", "a") // the way back counts too
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Dial(ctx, "b:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("dial over a cut: %v", err)
		}
		go func() {
			<-time.After(time.Second)
			f.Rejoin("a", "b")
		}()
		c, err := a.Dial(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	})
}
