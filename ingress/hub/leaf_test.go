package hub

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// dialPlain connects to the leafnode listener without our own dialer.
func dialPlain(t *testing.T, h *Hub) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", h.leafAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestLeafListenerOfTheUser(t *testing.T) {
	t.Parallel()
	const refused = "'Authorization Violation'"
	for _, c := range []struct {
		name, conf     string
		ours           []string // accounts our links must be bound to
		user, password string   // of the user's own leafnodes
		theirs         string   // the account those are bound to
		anonymous      string   // the account a leafnode without credentials gets, or the refusal
	}{
		{
			name: "single user", ours: []string{"A", "B"}, user: "edge", password: "e",
			theirs: "B", anonymous: refused,
			conf: `leafnodes { listen: "127.0.0.1:-1", authorization { user: edge, password: e, account: B } }
				accounts { A { users: [{user: a, password: a}] }, B { users: [{user: b, password: b}] } }`,
		},
		{
			name: "single user of $G", ours: []string{"$G"}, user: "edge", password: "e",
			theirs: "$G", anonymous: refused,
			conf: `leafnodes { listen: "127.0.0.1:-1", authorization { user: edge, password: e } }`,
		},
		{
			name: "users", ours: []string{"A", "B"}, user: "edge", password: "e",
			theirs: "A", anonymous: refused,
			conf: `leafnodes { listen: "127.0.0.1:-1"
				authorization { users: [{user: edge, password: e, account: A}] } }
				accounts { A { users: [{user: a, password: a}] }, B { users: [{user: b, password: b}] } }`,
		},
		{
			name: "users of the accounts", ours: []string{"A", "B"}, user: "b", password: "b",
			theirs: "B", anonymous: refused,
			conf: `leafnodes { listen: "127.0.0.1:-1" }
				accounts { A { users: [{user: a, password: a}] }, B { users: [{user: b, password: b}] } }`,
		},
		{
			name: "no authorization", ours: []string{"$G"}, theirs: "$G", anonymous: "$G",
			conf: `leafnodes { listen: "127.0.0.1:-1" }`,
		},
		{
			name: "all interfaces", ours: []string{"$G"}, theirs: "$G", anonymous: "$G",
			conf: `leafnodes { port: -1 }`,
		},
		{
			name: "authorization without listener", ours: []string{"$G"}, user: "edge", password: "e",
			theirs: "$G", anonymous: refused,
			conf: `leafnodes { authorization { user: edge, password: e } }`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := start(t, Config{ServerName: "n", ConfigFile: write(t, "hub.conf", c.conf)})
			for _, a := range c.ours {
				if got := leafAccount(t, h, a); got != a {
					t.Errorf("our link of %s is in %q", a, got)
				}
			}
			if got := leafHelloOn(t, dialPlain(t, h), c.user, c.password); got != c.theirs {
				t.Errorf("their leafnode is in %q, want %q", got, c.theirs)
			}
			if got := leafHelloOn(t, dialPlain(t, h), "", ""); got != c.anonymous {
				t.Errorf("without credentials: %q, want %q", got, c.anonymous)
			}
			if c.user == "" {
				return
			}
			if got := leafHelloOn(t, dialPlain(t, h), c.user, "wrong"); got != refused {
				t.Errorf("wrong password: %q", got)
			}
		})
	}
}

// A hub that is itself a leafnode of another one keeps that link, and gets our own listener beside it.
func TestLeafRemoteOfTheUser(t *testing.T) {
	t.Parallel()
	listening := write(t, "hub.conf", `leafnodes { listen: "127.0.0.1:-1" }`)
	up := start(t, Config{ServerName: "up", ConfigFile: listening})
	down := start(t, Config{ServerName: "down", ConfigFile: write(t, "hub.conf",
		`leafnodes { remotes: [{url: "nats-leaf://`+up.leafAddr()+`"}] }`)})
	if got := leafAccount(t, down, "$G"); got != "$G" {
		t.Errorf("our link is in %q", got)
	}
	answer(t, connect(t, up.ClientURL()), "ask", "from above")
	nc := connect(t, down.ClientURL())
	eventually(t, "answer over the leafnode", func() bool { return request(nc, "ask") == "from above" })
}

// certFiles writes a self-signed certificate for names and its key.
func certFiles(t *testing.T, usage ...x509.ExtKeyUsage) (cert, key string) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outside.example"},
		DNSNames: []string{"outside.example"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: usage,
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, priv.Public(), priv)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pk},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := certFiles(t, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
	block := func(more string) string {
		return `tls { cert_file: "` + cert + `", key_file: "` + key + `", ca_file: "` + cert + `"
			` + more + ` }`
	}
	for _, c := range []struct{ name, more string }{
		{"plain", ""},
		{"client certificate", "verify: true"},
		{"handshake first", "handshake_first: true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := start(t, Config{
				ServerName: "n", ClusterName: "c", RouteListen: "127.0.0.1:0",
				ConfigFile: write(t, "hub.conf", block(c.more)+`
				authorization { user: joe, password: secret }
				leafnodes { listen: "127.0.0.1:-1", `+block(c.more)+` }`),
			})
			check := func() {
				t.Helper()
				if got := leafAccount(t, h, "$G"); got != "$G" {
					t.Errorf("our link is in %q", got)
				}
				answer(t, service(t, h, "$G"), "ask", "ours")
			}
			check()
			setRoutes(t, h, "127.0.0.1:1") // the certificates are read again
			check()
			nc, err := nats.Connect(h.ClientURL(), nats.UserInfo("joe", "secret"),
				nats.Timeout(200*time.Millisecond))
			if err == nil {
				nc.Close()
				t.Error("a client without TLS settings connected")
			}
			if !strings.HasPrefix(h.ClientURL(), "tls://") {
				t.Errorf("URL %s", h.ClientURL())
			}
		})
	}
}

func TestLeafTLSPinsOurOwnCertificate(t *testing.T) {
	t.Parallel()
	load := func() *tls.Config {
		cert, err := tls.LoadX509KeyPair(certFiles(t, x509.ExtKeyUsageServerAuth))
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	ours, theirs := load(), load()
	serve := func(conf *tls.Config, info string) net.Conn {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			srv, err := ln.Accept()
			if err != nil {
				return
			}
			defer srv.Close()
			if _, err := srv.Write([]byte(info)); err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, tls.Server(srv, conf)) // until the client is gone
		}()
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	conn, err := leafTLS(t.Context(), serve(ours, "INFO {}\r\n"), ours, false)
	if err != nil {
		t.Fatal(err)
	}
	var line [9]byte
	if _, err := conn.Read(line[:]); err != nil || string(line[:]) != "INFO {}\r\n" {
		t.Errorf("first line %q, %v", line, err)
	}
	if _, err := leafTLS(t.Context(), serve(theirs, "INFO {}\r\n"), ours, false); err == nil ||
		!strings.Contains(err.Error(), "not the one of our own") {
		t.Errorf("foreign certificate: %v", err)
	}
	long := strings.Repeat("x", maxInfoLine+1)
	if _, err := leafTLS(t.Context(), serve(ours, long), ours, false); err == nil ||
		!strings.Contains(err.Error(), "longer than 65536") {
		t.Errorf("endless line: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := leafTLS(ctx, serve(ours, "INFO"), ours, false); !errors.Is(err, os.ErrDeadlineExceeded) &&
		!errors.Is(err, context.DeadlineExceeded) && err == nil {
		t.Errorf("silent server: %v", err)
	}
}
