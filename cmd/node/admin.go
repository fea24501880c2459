package node

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Bounds of the admin listener.
const (
	// MinAdminToken is the shortest token that AdminTokenFile may hold, in bytes.
	MinAdminToken = 16
	// MaxAdminToken is the longest, white space around it not counted.
	MaxAdminToken = 1024

	adminHeaderTimeout = 5 * time.Second
	adminIdleTimeout   = time.Minute
	// adminCloseTimeout is how long an answer in progress may take when the node stops.
	adminCloseTimeout = time.Second
	// operateTimeout bounds what an operator's request may wait for.
	operateTimeout = time.Minute
)

// admin is the listener for people and machines that look after a node.
type admin struct {
	srv  *http.Server
	addr net.Addr
	done chan struct{}
	left chan struct{} // closed when the node has left its cluster
}

// startAdmin opens the admin listener, if there is to be one. It is the last part
// to start, so that whatever it asks is there.
func (n *Node) startAdmin(ctx context.Context) error {
	if n.cfg.AdminListen == "" {
		return nil
	}
	token, err := readToken(n.cfg.AdminTokenFile)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", n.cfg.AdminListen)
	if err != nil {
		return fmt.Errorf("--admin-listen: %w", err)
	}
	a := &admin{addr: l.Addr(), done: make(chan struct{}), left: make(chan struct{})}
	a.srv = &http.Server{
		Handler:           n.adminHandler(a, token),
		ReadHeaderTimeout: adminHeaderTimeout,
		IdleTimeout:       adminIdleTimeout,
		ErrorLog:          zap.NewStdLog(n.log.Named("admin")),
	}
	n.admin = a
	go func() {
		defer close(a.done)
		if err := a.srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("admin listener ended", zap.Error(err))
		}
	}()
	return nil
}

// close ends the listener; answers in progress get a moment.
func (a *admin) close() error {
	//nolint:forbidigo // bounded here; the node stops, whatever its caller's context says
	ctx, cancel := context.WithTimeout(context.Background(), adminCloseTimeout)
	defer cancel()
	err := a.srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = a.srv.Close()
	}
	<-a.done
	return err
}

// readToken reads the token file; an empty path is no token.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	const cure = "put 16 to 1024 printable characters into the file"
	b, err := os.ReadFile(path)
	if err != nil {
		return "", &ConfigError{"--admin-token-file", err.Error(), cure}
	}
	token := strings.TrimSpace(string(b))
	if len(token) < MinAdminToken || len(token) > MaxAdminToken {
		problem := fmt.Sprintf("%s holds %d characters", path, len(token))
		return "", &ConfigError{"--admin-token-file", problem, cure}
	}
	return token, nil
}

func (n *Node) adminHandler(a *admin, token string) http.Handler {
	mux := http.NewServeMux()
	get := func(path string, f func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, f())
		})
	}
	get("/raft", func() any { return n.raftStatus() })
	get("/members", func() any { return n.memberStatus() })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerHealth(w, n.Health()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		why := n.readiness()
		answerHealth(w, Health{OK: len(why) == 0, Reasons: why})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.metrics(), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /hash", n.onHash)
	mux.HandleFunc("POST /transfer", n.onTransfer)
	mux.HandleFunc("POST /remove", n.onRemove)
	mux.HandleFunc("POST /accept-clock", n.onAccept)
	mux.HandleFunc("POST /leave", func(w http.ResponseWriter, r *http.Request) { n.onLeave(w, r, a) })
	// A page in a browser on this machine must not be able to remove nodes.
	return authorized(token, http.NewCrossOriginProtection().Handler(mux))
}

// authorized asks every request for the token, if there is one.
func authorized(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want := sha256.Sum256([]byte("Bearer " + token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, http.StatusUnauthorized,
				Problem{Error: "the request bears no valid token (Authorization: Bearer …)"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // whoever asked has gone
}

// Problem is the body of every refused admin request.
type Problem struct {
	Error string `json:"error"`
	// Leader and Admin say who leads the group that was asked for, and its admin address, if another node
	// is to be asked.
	Leader string `json:"leader,omitempty"`
	Admin  string `json:"admin,omitempty"`
}

// Health is the body of /healthz and /readyz.
type Health struct {
	OK bool `json:"ok"`
	// Status is "ok", "degraded" (something here is out of service, the rest goes on) or "failed".
	Status string `json:"status,omitempty"`
	// Reasons say why not.
	Reasons []string `json:"reasons,omitempty"`
	// Notes are what somebody should know although nothing is broken.
	Notes []string `json:"notes,omitempty"`
}

func answerHealth(w http.ResponseWriter, h Health) {
	status := http.StatusOK
	if !h.OK {
		status = http.StatusServiceUnavailable
	}
	answer(w, status, h)
}

func (n *Node) raftStatus() []replication.Status {
	out := make([]replication.Status, 0, len(n.host.Groups()))
	for _, g := range n.host.Groups() {
		out = append(out, g.Status())
	}
	return out
}

// Health says what is broken here, as opposed to what is not there yet.
func (n *Node) Health() Health {
	h := Health{Status: "ok", Notes: n.clockNotes()}
	degraded := func(reason string) {
		h.Status, h.Reasons = "degraded", append(h.Reasons, reason)
	}
	if s := n.disk.Status(); s.Refusing {
		degraded(s.Reason)
	}
	for _, g := range n.host.Groups() {
		switch st := g.Status(); {
		case st.Damage != nil:
			degraded(describe(st.Damage))
		case st.Role == replication.RoleStopped:
			degraded(fmt.Sprintf("group %d is stopped", st.Group))
		}
	}
	if text := n.discordant(); text != "" {
		h.Notes = append(h.Notes, text)
	}
	if err := n.host.Failed(); err != nil {
		h.Status, h.Reasons = "failed", append(h.Reasons, err.Error())
	}
	h.OK = len(h.Reasons) == 0
	return h
}

// describe says what is wrong with a replica, which file it is, and what happens next.
func describe(d *replication.Damage) string {
	text := fmt.Sprintf("group %d is damaged on this node, file %s: %s", d.Group, d.File, d.Reason)
	if d.Aside != "" {
		text += "; the damaged files are kept in " + d.Aside + ", a new replica is being filled"
	}
	if d.Waits != "" {
		text += "; " + d.Waits
	}
	return text
}

func (n *Node) onTransfer(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("group")
	group, err := strconv.ParseUint(text, 10, 32)
	if err != nil || group >= uint64(len(n.host.Groups())) {
		answer(w, http.StatusBadRequest, Problem{Error: fmt.Sprintf("group %q: give 0 to %d", text,
			len(n.host.Groups())-1)})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), operateTimeout)
	defer cancel()
	err = n.transfer(ctx, uint32(group), r.URL.Query().Get("to"))
	if errors.Is(err, record.ErrNotLeader) {
		leader := n.host.Group(uint32(group)).Status().Leader
		p := Problem{Error: fmt.Sprintf("group %d is not led by %s", group, n.cfg.NodeID), Leader: leader}
		row, _, err := replication.Row[replication.NodeRow](n.host.Meta(), replication.NodeKey(leader))
		if err == nil {
			p.Admin = row.Admin
		}
		answer(w, http.StatusMisdirectedRequest, p)
		return
	}
	n.done(w, err)
}

func (n *Node) onRemove(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("node")
	if id == "" {
		answer(w, http.StatusBadRequest, Problem{Error: "node: give the id of the node to remove"})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), operateTimeout)
	defer cancel()
	n.done(w, n.removeNode(ctx, id))
}

func (n *Node) onAccept(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), operateTimeout)
	defer cancel()
	accepted, err := n.acceptClock(ctx)
	if err != nil {
		n.done(w, err)
		return
	}
	answer(w, http.StatusOK, accepted)
}

func (n *Node) onLeave(w http.ResponseWriter, r *http.Request, a *admin) {
	ctx, cancel := context.WithTimeout(r.Context(), operateTimeout)
	defer cancel()
	err := n.leave(ctx)
	if err == nil {
		select {
		case <-a.left:
		default:
			close(a.left)
		}
	}
	n.done(w, err)
}

// done answers an operator's request.
func (n *Node) done(w http.ResponseWriter, err error) {
	status := http.StatusConflict
	switch {
	case err == nil:
		answer(w, http.StatusOK, Health{OK: true})
		return
	case errors.Is(err, record.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, record.ErrUnknownOutcome):
		status = http.StatusGatewayTimeout
	}
	answer(w, status, Problem{Error: err.Error()})
}

// Left is closed when an operator has taken the node out of its cluster: the process should stop then.
func (n *Node) Left() <-chan struct{} {
	if n.admin == nil {
		return nil
	}
	return n.admin.left
}

// Readiness says why the node does not serve yet, or not any more; nothing if it does.
func (n *Node) Readiness() []string { return n.readiness() }

// ClientURL is where NATS clients connect.
func (n *Node) ClientURL() string { return n.hub.ClientURL() }

// AdminURL is where operators connect; empty without an admin listener.
func (n *Node) AdminURL() string {
	if n.admin == nil {
		return ""
	}
	return "http://" + n.admin.addr.String()
}
