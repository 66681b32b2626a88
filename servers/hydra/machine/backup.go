package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"flashdbm/servers/store"
)

// A backup of a node is a directory with which a node can be started: node.json and the files of its shards. A backup
// of a cluster has all shards, which may come from different nodes. The first node of a new cluster that is started
// with such a directory gives the cluster its seed, its shards and their records.

var errMoving = errors.New("machine: keys are being moved from one shard to another, so backups of two shards would not fit together; try again when that is done")

// Backup writes a backup of a shard's file, for RestoreShard, while the shard continues to serve. It refuses a
// partial copy.
func (n *Node) Backup(ctx context.Context, number uint32, w io.Writer) error {
	r := n.runner(number)
	if r == nil {
		return fmt.Errorf("%w: %d", errNoSuchShard, number)
	}
	if n.members != nil && n.view.Load().Circle.Moving() {
		return errMoving
	}
	type found struct {
		s   *store.Store
		err error
	}
	asked := make(chan found, 1)
	r.hand(func() {
		f := found{s: r.store}
		switch {
		case r.store == nil:
			f.err = errors.New("machine: a shard in memory has no file")
		case r.shard.Err() != nil:
			f.err = r.shard.Err()
		case n.members != nil && !r.shard.Follower().Whole():
			f.err = fmt.Errorf("machine: shard %d has a part of a copy only", number)
		}
		asked <- f
	})
	select {
	case f := <-asked:
		if f.err != nil {
			return f.err
		}
		return f.s.Backup(ctx, w)
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ctx.Done():
		return errClosed
	}
}

// RestoreShard creates a shard's file from a backup, in a directory that RestoreNode has made.
func RestoreShard(ctx context.Context, dir string, number uint32, backup io.Reader) error {
	return store.Restore(ctx, filepath.Join(dir, shardFile(number)), backup)
}

// RestoreNode makes a directory for the shards of the node whose directory is from. A directory that already has
// shards of the same cluster is accepted.
func RestoreNode(dir, from string) error {
	b, err := os.ReadFile(filepath.Join(from, nodeFile))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(there) == 0 {
		return store.WriteFile(filepath.Join(dir, nodeFile), b)
	}
	if has, err := os.ReadFile(filepath.Join(dir, nodeFile)); err != nil || !bytes.Equal(bytes.TrimSpace(has), bytes.TrimSpace(b)) {
		return fmt.Errorf("%s is not empty, and has no backup of this cluster", dir)
	}
	return nil
}
