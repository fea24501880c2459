package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication"
)

// Run makes a stopped node the only voter of every group.
func (c *recoverCmd) Run(env *environment) error {
	s, err := openStopped(c.Dir)
	if err != nil {
		return err
	}
	if s.lock == nil {
		return usage(fmt.Errorf("%s: no node ever ran here", c.Dir))
	}
	err = s.recover(env, c.Survivor)
	return errors.Join(err, s.lock.Release())
}

func (s *stopped) recover(env *environment, survivor string) error {
	if s.lost == nil && s.who.Node != survivor {
		return usage(fmt.Errorf("--survivor is %q, %s is the data directory of %q", survivor, s.dir, s.who.Node))
	}
	if s.lost != nil {
		env.say("%v; it is written anew.", s.lost)
	}
	groups, err := replication.Recover(replication.Config{NodeID: survivor, Dir: s.dir, Logger: zap.NewNop()})
	rows := [][]string{{"GROUP", "VOTERS BEFORE", "VOTER NOW", "LAST ENTRY"}}
	for _, g := range groups {
		rows = append(rows, []string{
			strconv.Itoa(int(g.Group)), strings.Join(g.Before, ", "), g.Server,
			fmt.Sprintf("%d of term %d", g.LastIndex, g.LastTerm),
		})
	}
	if len(groups) > 0 {
		if err := env.table(rows); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	env.say("\n%s is the only voter now. Start it as before; other nodes join it with empty data directories.", survivor)
	return nil
}
