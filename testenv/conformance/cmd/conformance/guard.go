package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// apiInfo is the subject of the JetStream API that every server with JetStream answers.
const apiInfo = "$JS.API.INFO"

// guard makes sure that what is tested is ours: servers whose own JetStream is off, and where the API is
// answered all the same; or not, where JetStream was not asked for. A run that tested the real server unseen
// would look like full marks.
func (t *tester) guard() error {
	for _, jetStream := range []bool{true, false} {
		if err := t.guardServer(jetStream); err != nil {
			return err
		}
	}
	return nil
}

func (t *tester) guardServer(jetStream bool) error {
	var made struct {
		ID      string `json:"id"`
		Servers []struct {
			Port int `json:"port"`
		} `json:"servers"`
	}
	request := map[string]any{"description": "guard", "jetstream": jetStream}
	if err := t.ask("create.server", request, &made); err != nil {
		return err
	}
	if len(made.Servers) != 1 {
		return fmt.Errorf("asked for one server, got %d", len(made.Servers))
	}
	err := errors.Join(guardInfo(made.Servers[0].Port), guardAPI(made.Servers[0].Port, jetStream))
	return errors.Join(err, t.destroy(made.ID))
}

// guardInfo reads the first line of a server: one with JetStream says so there.
func guardInfo(port int) error {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), askTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err
	}
	var info map[string]any
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &info); err != nil {
		return fmt.Errorf("INFO line %q: %w", line, err)
	}
	if js, ok := info["jetstream"]; ok {
		return fmt.Errorf("INFO says jetstream is %v; a hub of ours has none", js)
	}
	return nil
}

func guardAPI(port int, answered bool) error {
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer nc.Close()
	m, err := nc.Request(apiInfo, nil, 5*time.Second)
	switch {
	case answered && err != nil:
		return fmt.Errorf("%s of a server with JetStream: %w", apiInfo, err)
	case answered:
		return nil
	case errors.Is(err, nats.ErrNoResponders):
		return nil
	case err != nil:
		return fmt.Errorf("%s of a server without JetStream: %w; want no responders", apiInfo, err)
	}
	return fmt.Errorf("%s of a server without JetStream was answered: %s", apiInfo, m.Data)
}
