package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"flashdbm/servers/daemon/etcdmap"
	"flashdbm/servers/membership"
)

// runDrain is flashdbmd drain, and flashdbmd add, which takes a drained node back.
func runDrain(command string, args []string, env func(string) (string, bool), out io.Writer) error {
	var etcd, name, node string
	limit := 10 * time.Minute
	f := newFlags(command)
	f.StringVar(&etcd, "etcd", "", "endpoints of etcd, separated by commas")
	f.StringVar(&name, "cluster", "flashdbm", "name of the cluster")
	if command == "drain" {
		f.StringVar(&node, "node", "", "the node to move all shards from")
		f.DurationVar(&limit, "wait", limit, "how long to wait until it has none; 0: not at all")
	} else {
		f.StringVar(&node, "node", "", "the node, drained before, that shall have shards again")
	}
	if _, err := parseFlags(f, args, 0, env, out); err != nil {
		return err
	}
	if etcd == "" || node == "" {
		return fmt.Errorf("give --etcd and --node: %w", errUsage)
	}
	agreed, err := etcdmap.Open(etcdmap.Options{Endpoints: strings.Split(etcd, ","), Name: name})
	if err != nil {
		return err
	}
	defer agreed.Close()
	look := func() (membership.Drained, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return membership.LookAtDrained(ctx, agreed, node)
	}
	d, err := look()
	if err != nil {
		return err
	}
	drains := command == "drain"
	if drains && d.Others < d.Needed {
		return fmt.Errorf("%d nodes would be left, and writes need %d copies; start another node first", d.Others, d.Needed)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := membership.Drain(ctx, agreed, node, drains); err != nil {
		return err
	}
	if !drains {
		fmt.Fprintf(out, "node %s may have shards; it gets copies of those that it comes first for, if it runs\n", node)
		return nil
	}
	if d.Others < d.Desired {
		fmt.Fprintf(out, "%d nodes are left, so each shard will have %d copies and not %d\n", d.Others, d.Others, d.Desired)
	}
	for began, said := time.Now(), ""; ; time.Sleep(100 * time.Millisecond) {
		if d, err = look(); err != nil {
			return err
		}
		if len(d.Shards) == 0 {
			fmt.Fprintf(out, "node %s has no shard, and can be stopped\n", node)
			return nil
		}
		if now := fmt.Sprintf("node %s is a copy of %d shards, and serves %d of them", node, len(d.Shards), d.Serves); now != said {
			said = now
			fmt.Fprintln(out, now)
		}
		if limit > 0 && time.Since(began) >= limit {
			return fmt.Errorf("after %v node %s is still a copy of shards %v; flashdbmd status on the nodes that serve them shows what they wait for", limit, node, d.Shards)
		}
		if limit == 0 {
			return nil
		}
	}
}
