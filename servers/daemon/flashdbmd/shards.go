package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/daemon/etcdmap"
	"flashdbm/servers/membership"
)

// runShards is flashdbmd shards.
func runShards(args []string, env func(string) (string, bool), out io.Writer) error {
	var etcd, name, drain string
	var add int
	limit := 10 * time.Minute
	f := newFlags("shards")
	f.StringVar(&etcd, "etcd", "", "endpoints of etcd, separated by commas")
	f.StringVar(&name, "cluster", "flashdbm", "name of the cluster")
	f.IntVar(&add, "add", 0, "add this number of shards")
	f.StringVar(&drain, "drain", "", "numbers of the shards to move all keys from, separated by commas")
	f.DurationVar(&limit, "wait", limit, "how long to wait until all keys have moved; 0: not at all")
	if _, err := parseFlags(f, args, 0, env, out); err != nil {
		return err
	}
	if etcd == "" || add != 0 && drain != "" {
		return fmt.Errorf("give --etcd, and --add or --drain or neither: %w", errUsage)
	}
	var numbers []uint32
	for s := range strings.SplitSeq(drain, ",") {
		n, err := strconv.ParseUint(s, 10, 32)
		if drain != "" && err != nil {
			return fmt.Errorf("--drain: %q is no number of a shard: %w", s, errUsage)
		}
		numbers = append(numbers, uint32(n))
	}
	agreed, err := etcdmap.Open(etcdmap.Options{Endpoints: strings.Split(etcd, ","), Name: name})
	if err != nil {
		return err
	}
	defer agreed.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch {
	case add != 0:
		_, err = membership.AddShards(ctx, agreed, add)
	case drain != "":
		_, err = membership.DrainShards(ctx, agreed, numbers...)
	}
	if err != nil {
		return err
	}
	return waitForShards(agreed, add != 0 || drain != "", limit, out)
}

// waitForShards reports how far the shards of a cluster are. If waits is set, it continues until no part moves
// any more.
func waitForShards(agreed *etcdmap.Map, waits bool, limit time.Duration, out io.Writer) error {
	for began, said := time.Now(), ""; ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		a, moves, err := membership.LookAtCircle(ctx, agreed)
		cancel()
		if err != nil {
			return err
		}
		if now := shardsSay(&a, moves); now != said {
			said = now
			fmt.Fprintln(out, now)
		}
		switch {
		case !waits || limit == 0 || !a.Moving():
			return nil
		case time.Since(began) >= limit:
			return fmt.Errorf("after %v keys are still being moved; flashdbmd status on the nodes shows what they wait for", limit)
		}
	}
}

// shardsSay describes which shards share the keys, and what moves.
func shardsSay(a *circle.Assignment, moves []circle.Move) string {
	if !a.Moving() {
		return fmt.Sprintf("shards %s share the keys", listOf(a.Shards))
	}
	done := 0
	var left []string
	for _, m := range moves {
		if m.Moved {
			done++
		} else {
			left = append(left, fmt.Sprintf("%d to %d", m.From, m.To))
		}
	}
	return fmt.Sprintf("shards %s share the keys, and %s shall: %d of %d moves are done, left are %s", listOf(a.Owners()), listOf(a.Next), done, len(moves), strings.Join(left, ", "))
}

func listOf(shards []uint32) string {
	return strings.Trim(fmt.Sprint(shards), "[]")
}
