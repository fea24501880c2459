package jsapi

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// oracle is a real JetStream in this process, whose answers ours are compared with.
type oracle struct {
	t  *testing.T
	nc *nats.Conn
}

func newOracle(t *testing.T) *oracle {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		DontListen: true,
		JetStream:  true,
		StoreDir:   t.TempDir(),
		NoLog:      true,
		NoSigs:     true,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return &oracle{t: t, nc: nc}
}

// call sends an API request and returns the answer's bytes.
func (o *oracle) call(verb, body string) []byte {
	o.t.Helper()
	msg, err := o.nc.Request(DefaultPrefix+"."+verb, []byte(body), 5*time.Second)
	if err != nil {
		o.t.Fatalf("%s %s: %v", verb, body, err)
	}
	return msg.Data
}

// answer is the part of a create or update answer that is compared.
type answer struct {
	Type   string          `json:"type"`
	Error  *Error          `json:"error"`
	Config json.RawMessage `json:"config"`
}

func decodeAnswer(t *testing.T, data []byte) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if a.Error != nil {
		// The one thing of Go's decoder that can not be the same: the package of a type.
		a.Error.Description = strings.ReplaceAll(a.Error.Description, "type server.", "type jsapi.")
		a.Config = nil // An answer to CREATE with an error has no configuration worth comparing.
	}
	return a
}

// diffAnswer compares what the real server said with our verdict.
func diffAnswer(t *testing.T, what string, theirs answer, cfg any, ours *Error) bool {
	t.Helper()
	if diff := cmp.Diff(theirs.Error, ours); diff != "" {
		t.Errorf("%s: error (-real +ours):\n%s", what, diff)
		return false
	}
	if ours != nil {
		return true
	}
	got, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(theirs.Config), string(got)); diff != "" {
		t.Errorf("%s: configuration (-real +ours):\n%s", what, diff)
		return false
	}
	return true
}

// oracleStreams are the streams that exist in the account while configurations are judged.
func (o *oracle) createOrigins(bodies ...string) map[string]*StreamConfig {
	o.t.Helper()
	streams := make(map[string]*StreamConfig)
	for _, body := range bodies {
		cfg, err := judgeCreate(body, "", streams)
		if err != nil {
			o.t.Fatalf("%s: %v", body, err)
		}
		if a := decodeAnswer(o.t, o.call("STREAM.CREATE."+cfg.Name, body)); a.Error != nil {
			o.t.Fatalf("%s: %v", body, a.Error)
		}
		streams[cfg.Name] = cfg
	}
	return streams
}

// judgeCreate does what an API server does with the body of STREAM.CREATE.<stream>; an empty
// stream is whatever the body says.
func judgeCreate(body, stream string, streams map[string]*StreamConfig) (*StreamConfig, *Error) {
	var req StreamConfigRequest
	if err := DecodeStrict([]byte(body), &req); err != nil {
		return nil, err
	}
	if stream == "" {
		stream = req.Name
	}
	if err := CheckStreamRequest(stream, &req.StreamConfig); err != nil {
		return nil, err
	}
	env := oracleEnv(streams)
	env.Pedantic = req.Pedantic
	cfg, err := CheckStreamConfig(&req.StreamConfig, env)
	if err != nil {
		return nil, err
	}
	for name, s := range streams {
		if name != cfg.Name && SubjectListsOverlap(cfg.Subjects, s.Subjects) {
			return nil, NewError(CodeStreamSubjectOverlap)
		}
	}
	return cfg, nil
}

func oracleEnv(streams map[string]*StreamConfig) *StreamEnv {
	return &StreamEnv{
		MaxVoters: 1,
		Lookup:    func(name string) *StreamConfig { return streams[name] },
	}
}
