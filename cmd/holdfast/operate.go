package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/replication"
)

// maxAnswer bounds what is read of an admin answer, in bytes.
const maxAnswer = 16 << 20

// misdirected says that another node is to be asked.
type misdirected struct{ node.Problem }

// Error implements error.
func (e *misdirected) Error() string { return e.Problem.Error }

// call sends one request to an admin listener and decodes its answer into out.
func (f *operatorFlags) call(ctx context.Context, method, admin, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+strings.TrimPrefix(admin, "http://")+path,
		http.NoBody)
	if err != nil {
		return usage(fmt.Errorf("--admin: %w", err))
	}
	if f.TokenFile != "" {
		token, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return usage(fmt.Errorf("--admin-token-file: %w", err))
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("no answer from the admin listener at %s (--admin): %w", admin, err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("answer of %s: %w", admin, err)
	}
	return decode(resp, body, out)
}

// get asks the node that the flags name.
func (f *operatorFlags) get(ctx context.Context, path string, out any) error {
	return f.call(ctx, http.MethodGet, f.Admin, path, out)
}

func decode(resp *http.Response, body []byte, out any) error {
	_, health := out.(*node.Health)
	if resp.StatusCode == http.StatusOK || health && resp.StatusCode == http.StatusServiceUnavailable {
		if err := json.Unmarshal(body, out); err != nil {
			return fmt.Errorf("answer of %s: %w", resp.Request.URL, err)
		}
		return nil
	}
	var p node.Problem
	if json.Unmarshal(body, &p) != nil || p.Error == "" {
		return fmt.Errorf("%s: %s", resp.Request.URL, resp.Status)
	}
	if resp.StatusCode == http.StatusMisdirectedRequest {
		return &misdirected{p}
	}
	return errors.New(p.Error)
}

// print prints an answer as JSON, if that is asked for.
func (f *operatorFlags) print(env *environment, v any) (printed bool, err error) {
	if !f.JSON {
		return false, nil
	}
	enc := json.NewEncoder(env.stdout)
	enc.SetIndent("", "  ")
	return true, enc.Encode(v)
}

// table prints rows in columns.
func (e *environment) table(rows [][]string) error {
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		if _, err := fmt.Fprintln(w, strings.TrimRight(strings.Join(r, "\t"), "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Run prints how the groups stand.
func (c *statusCmd) Run(env *environment) error {
	var groups []replication.Status
	var ready node.Health
	if err := c.Ask.get(env.ctx, "/raft", &groups); err != nil {
		return err
	}
	if err := c.Ask.get(env.ctx, "/readyz", &ready); err != nil {
		return err
	}
	if printed, err := c.Ask.print(env, map[string]any{"ready": ready, "groups": groups}); printed {
		return err
	}
	rows := [][]string{{"GROUP", "HERE", "LEADER", "TERM", "COMMIT", "APPLIED", "LAST", "MEMBERS"}}
	for i := range groups {
		g := &groups[i]
		var members []string
		for _, m := range g.Members {
			name := m.Node
			if !m.Voter {
				name += "(no vote)"
			}
			members = append(members, name)
		}
		rows = append(rows, []string{
			strconv.FormatUint(uint64(g.Group),
				10), string(g.Role), dash(g.Leader), number(g.Term), number(g.Commit),
			number(g.Applied), number(g.LastLog), dash(strings.Join(members, " ")),
		})
	}
	if err := env.table(rows); err != nil {
		return err
	}
	if ready.OK {
		env.say("\nThe node at %s serves.", c.Ask.Admin)
		return nil
	}
	env.say("\nThe node at %s does not serve: %s.", c.Ask.Admin, strings.Join(ready.Reasons, "; "))
	return nil
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Run prints the nodes.
func (c *membersCmd) Run(env *environment) error {
	var members []node.MemberStatus
	if err := c.Ask.get(env.ctx, "/members", &members); err != nil {
		return err
	}
	if printed, err := c.Ask.print(env, members); printed {
		return err
	}
	rows := [][]string{{"NODE", "GOSSIP", "LEADS", "VOTES IN", "FOLLOWS", "CLIENTS", "ADMIN", "VERSION"}}
	for i := range members {
		m := &members[i]
		rows = append(rows, []string{
			m.ID, dash(m.Gossip), numbers(m.Leads), numbers(m.Votes), numbers(m.Follows),
			dash(m.NATS), dash(m.Admin), dash(m.Version),
		})
	}
	return env.table(rows)
}

func numbers(list []uint32) string {
	var out []string
	for _, n := range list {
		out = append(out, strconv.FormatUint(uint64(n), 10))
	}
	return dash(strings.Join(out, ","))
}

// Run hands a group over. Only its leader can; the asked node says who that is.
func (c *transferCmd) Run(env *environment) error {
	q := url.Values{"group": {strconv.FormatUint(uint64(c.Group), 10)}}
	if c.To != "" {
		q.Set("to", c.To)
	}
	path := "/transfer?" + q.Encode()
	err := c.Ask.call(env.ctx, http.MethodPost, c.Ask.Admin, path, &node.Health{})
	var other *misdirected
	if errors.As(err, &other) && other.Admin != "" {
		err = c.Ask.call(env.ctx, http.MethodPost, other.Admin, path, &node.Health{})
	}
	if err != nil {
		return err
	}
	env.say("Group %d was handed over.", c.Group)
	return nil
}

// Run tells all groups that the wall clocks are right.
func (c *acceptClockCmd) Run(env *environment) error {
	var groups []node.AcceptedClock
	if err := c.Ask.call(env.ctx, http.MethodPost, c.Ask.Admin, "/accept-clock", &groups); err != nil {
		return err
	}
	if printed, err := c.Ask.print(env, groups); printed {
		return err
	}
	for _, g := range groups {
		if g.CorrectedNS > 0 {
			env.say("The clock of group %d was corrected forward by %v.", g.Group, time.Duration(g.CorrectedNS))
		}
	}
	env.say("All %d groups accept the wall clocks.", len(groups))
	return nil
}

// Run takes a node out.
func (c *removeCmd) Run(env *environment) error {
	path := "/remove?" + url.Values{"node": {c.Node}}.Encode()
	if err := c.Ask.call(env.ctx, http.MethodPost, c.Ask.Admin, path, &node.Health{}); err != nil {
		return err
	}
	env.say("Node %s is to leave; see cluster members for when it is out of every group.", c.Node)
	return nil
}

// Run takes the asked node out of its cluster.
func (c *leaveCmd) Run(env *environment) error {
	if err := c.Ask.call(env.ctx, http.MethodPost, c.Ask.Admin, "/leave", &node.Health{}); err != nil {
		return err
	}
	env.say("The node at %s has left its cluster and stops.", c.Ask.Admin)
	return nil
}
