package ingress

import (
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
}

// send sends a reply or status. What can not be sent is logged: its receiver times out.
func (a *account) send(subject string, header, body []byte) {
	if subject == "" {
		return
	}
	if err := a.link.Send(subject, "", header, body); err != nil {
		a.srv.log.Warn("reply not sent", zap.String("account", a.Name), zap.Error(err))
	}
}

// noResponders tells a requester that nobody serves its subject, as a server does.
func (a *account) noResponders(m *Msg) {
	h := jsapi.AppendStatusLine(nil, jsapi.StatusNoResponders)
	a.send(m.Reply, jsapi.EndHeader(jsapi.AppendHeader(h, jsapi.HdrSubject, m.Subject)), nil)
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

func (a *account) closeConn() {
	if a.conn != nil {
		a.conn.Close()
	}
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
