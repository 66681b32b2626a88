package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"flashdbm/servers/cluster"
	"flashdbm/servers/daemon/etcdmap"
	"flashdbm/servers/membership"
)

// runRecover is flashdbmd recover: the user decides that a node continues with its copy of a shard whose set is lost
// for good.
func runRecover(args []string, env func(string) (string, bool), out io.Writer) error {
	var etcd, name, node string
	var shard int
	var yes bool
	f := newFlags("recover")
	f.StringVar(&etcd, "etcd", "", "endpoints of etcd, separated by commas")
	f.StringVar(&name, "cluster", "flashdbm", "name of the cluster")
	f.IntVar(&shard, "shard", -1, "the shard that nobody serves")
	f.StringVar(&node, "node", "", "the node that continues with its copy of the shard; it must be running")
	f.BoolVar(&yes, "yes", false, "do it; without this the command only says what it would do")
	if _, err := parseFlags(f, args, 0, env, out); err != nil {
		return err
	}
	if etcd == "" || shard < 0 {
		return fmt.Errorf("give --etcd and --shard: %w", errUsage)
	}
	agreed, err := etcdmap.Open(etcdmap.Options{Endpoints: strings.Split(etcd, ","), Name: name})
	if err != nil {
		return err
	}
	defer agreed.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := membership.LookAt(ctx, agreed, uint32(shard))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "shard %d: term %d, primary %s, in sync: %s\n", shard, r.Record.Term, r.Record.Primary, strings.Join(r.Record.Set, " "))
	for _, n := range r.Nodes {
		fmt.Fprintf(out, "node %s runs; when it started, its file ended with entry %d of term %d%s\n", n.Name, n.Entry, n.Term, map[bool]string{true: "; it is in sync"}[n.InSync])
	}
	if node == "" {
		return nil
	}
	switch err := r.Recover(ctx, agreed, node, yes); {
	case errors.Is(err, cluster.ErrChanged):
		return fmt.Errorf("the cluster has changed meanwhile; look again")
	case err != nil:
		return err
	}
	if !yes {
		fmt.Fprintf(out, "with --yes, node %s goes on with what it has. Every write that it lacks is lost for good, acknowledged or not\n", node)
		return nil
	}
	fmt.Fprintf(out, "node %s goes on, in term %d\n", node, r.Record.Term+1)
	return nil
}
