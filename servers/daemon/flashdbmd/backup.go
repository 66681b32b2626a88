package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"

	"flashdbm/servers/hydra/machine"
)

// backup answers with a backup of a shard's file. Only processes that may use the directory's socket get it. After
// the first byte an error can only be reported by a missing end: the connection is aborted.
func (a *admin) backup(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.ParseUint(r.PathValue("shard"), 10, 32)
	if err != nil {
		http.Error(w, "want the number of a shard", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	out := &countingWriter{w: w}
	if err := a.node.Backup(r.Context(), uint32(number), out); err != nil {
		if out.n == 0 {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		panic(http.ErrAbortHandler)
	}
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// runBackup is flashdbmd backup.
func runBackup(args []string, env func(string) (string, bool), out io.Writer) error {
	var dir, to string
	var serves bool
	f := newFlags("backup")
	f.StringVar(&dir, "dir", "", "directory of the node, which runs")
	f.StringVar(&to, "to", "", "directory for the backup, new or with one of other shards of the cluster: a node can be started with it")
	f.BoolVar(&serves, "served", false, "only shards that the node serves: the backups of all nodes, in one directory, have each shard once")
	if _, err := parseFlags(f, args, 0, env, out); err != nil {
		return err
	}
	if dir == "" || to == "" {
		return fmt.Errorf("give --dir and --to: %w", errUsage)
	}
	ctx := context.Background()
	s, err := askStatus(ctx, dir, "")
	if err != nil {
		return err
	}
	if err := machine.RestoreNode(to, dir); err != nil {
		return err
	}
	h := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, adminSocket))
	}}}
	defer h.CloseIdleConnections()
	n := 0
	for _, x := range s.Shards {
		switch {
		case x.Failure != "":
			return fmt.Errorf("shard %d has failed: %s", x.Shard, x.Failure)
		case serves && !x.Serving:
			continue
		case x.Role == "secondary" && !x.Whole:
			fmt.Fprintf(out, "shard %d is left out: this node has no whole copy of it\n", x.Shard)
			continue
		}
		if err := fetchBackup(ctx, &h, to, uint32(x.Shard)); err != nil {
			return fmt.Errorf("shard %d: %w; the shards before it are in %s", x.Shard, err, to)
		}
		n++
	}
	fmt.Fprintf(out, "%d of %d shards are in %s\n", n, len(s.Shards), to)
	return nil
}

func fetchBackup(ctx context.Context, h *http.Client, to string, shard uint32) error {
	r, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://flashdbmd/backup/%d", shard), nil)
	if err != nil {
		return err
	}
	answer, err := h.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
		return errors.New(string(why))
	}
	return machine.RestoreShard(ctx, to, shard, answer.Body)
}
