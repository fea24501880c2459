package ingress

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// account is one account of the hub on this node: its two connections.
type account struct {
	Account
	srv  *Server
	conn Conn
	link Link
	used usageCache
}

// send sends what stays true, whoever leads when it arrives: a committed fact, or that
// something is not known. What can not be sent is logged: its receiver times out.
func (a *account) send(subject string, header, body []byte) {
	a.post(&Outgoing{Subject: subject, Header: header, Body: body})
}

// sendFenced sends what only a leader may say. The caller has just checked that this
// node leads; the message leaves now or never.
func (a *account) sendFenced(subject string, header, body []byte) {
	a.post(&Outgoing{Subject: subject, Header: header, Body: body, Fenced: true})
}

// post says whether the link took the message.
func (a *account) post(m *Outgoing) bool {
	if m.Subject == "" {
		return true
	}
	err := a.link.Send(m)
	if err != nil {
		a.srv.log.Warn("reply not sent", zap.String("account", a.Name), zap.Error(err))
	}
	return err == nil
}

// noResponders tells a requester that nobody serves its subject, as a server does. The
// caller has just checked that this node leads.
func (a *account) noResponders(m *Msg) {
	h := jsapi.AppendStatusLine(nil, jsapi.StatusNoResponders)
	a.sendFenced(m.Reply, jsapi.EndHeader(jsapi.AppendHeader(h, jsapi.HdrSubject, m.Subject)), nil)
}

// controlSubjects are the API subjects that every node listens on, without the
// prefix: all but MSG.NEXT and DIRECT.GET, which only a leader may attract.
func controlSubjects() []string {
	return []string{
		"INFO",
		"STREAM.>",
		"CONSUMER.CREATE.>", "CONSUMER.DURABLE.CREATE.>", "CONSUMER.NAMES.>", "CONSUMER.LIST.>",
		"CONSUMER.INFO.>", "CONSUMER.DELETE.>", "CONSUMER.PAUSE.>", "CONSUMER.RESET.>", "CONSUMER.UNPIN.>",
		"CONSUMER.LEADER.>", "CONSUMER.PEER.>",
	}
}

// open connects the account and subscribes the control verbs.
func (a *account) open(hub Hub) error {
	var err error
	if a.conn, err = hub.Conn(a.Name); err != nil {
		return err
	}
	if a.link, err = hub.Link(a.Name); err != nil {
		a.conn.Close()
		return err
	}
	if a.Silent {
		return nil
	}
	for _, prefix := range a.srv.prefixes {
		for _, s := range controlSubjects() {
			if !a.JetStream && s != "INFO" {
				continue
			}
			if _, err := a.conn.Subscribe(prefix+"."+s, func(m *Msg) { a.srv.onAPI(a, prefix, m, time.Now()) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// lastRequests bounds how long a connection that ends is read for what was sent to it.
const lastRequests = 500 * time.Millisecond

// closeConn ends the connection when what the server had sent is read: requests in it
// are answered.
func (a *account) closeConn() {
	if a.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(a.srv.ctx, lastRequests)
	defer cancel()
	_ = a.conn.Flush(ctx) // one that is down has sent nothing
	a.conn.Close()
}

func (a *account) closeLink() {
	if a.link != nil {
		a.link.Close()
	}
}

// apiError answers an API request with an error.
func (a *account) apiError(req *jsapi.Request, m *Msg, e *jsapi.Error) {
	ac := api.Call{Req: *req, Reply: func(body []byte) { a.send(m.Reply, nil, body) }}
	ac.Error(e)
}
