package machine

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/cluster"
	"flashdbm/servers/shard"
)

// TestBackup: a cluster that begins with a backup of another cluster's shards has everything that was acknowledged
// before the backup, and nothing that came later. The terms of the new cluster are above those of the old one, which
// may have gone on.
func TestBackup(t *testing.T) {
	for _, d := range []shard.Durability{shard.Async, shard.Sync} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			c := newTestCluster(t, d)
			c.o.Shards = 3
			level := func(nodes ...*Node) {
				require.Eventually(t, func() bool {
					whole := 0
					for _, n := range nodes {
						for i := range uint32(3) {
							if len(n.members.Record(i).Set) == len(nodes) {
								whole++
							}
						}
					}
					return whole == 3*len(nodes)
				}, 30*time.Second, 10*time.Millisecond)
			}
			a, b := c.start("a"), c.start("b")
			level(a, b)
			x := c.client("a", "b")
			for i := range 200 {
				_, err := x.Put(t.Context(), []byte("key-"+strconv.Itoa(i)), []byte("value-"+strconv.Itoa(i)))
				require.NoError(t, err)
			}
			if d == shard.Async {
				time.Sleep(time.Second) // the file lags by at most that much
			}
			to := t.TempDir() + "/backup"
			require.NoError(t, RestoreNode(to, c.dirs["a"]))
			require.NoError(t, RestoreNode(to, c.dirs["b"]), "more of the same cluster")
			assert.ErrorContains(t, RestoreNode(c.dirs["a"]+"/..", c.dirs["a"]), "not empty")
			for i := range uint32(3) {
				var buf bytes.Buffer
				require.NoError(t, a.Backup(t.Context(), i, &buf))
				require.Error(t, RestoreShard(t.Context(), t.TempDir(), i, bytes.NewReader(buf.Bytes()[:buf.Len()-1])), "its end is missing")
				require.NoError(t, RestoreShard(t.Context(), to, i, &buf))
			}
			assert.Error(t, a.Backup(t.Context(), 3, &bytes.Buffer{}))
			_, err := x.Put(t.Context(), []byte("later"), []byte("value"))
			require.NoError(t, err)
			require.NoError(t, x.Close())
			for _, n := range []*Node{a, b} {
				require.NoError(t, n.Close())
				n.o.Listen[0].Domain.Close()
			}
			require.NoError(t, a.Close())

			next := newTestCluster(t, d)
			next.mem = cluster.NewMemory()
			next.dirs["n"] = to
			n := next.start("n") // the directory says how many shards there are and how keys are hashed
			m := next.start("m")
			level(n, m)
			y := next.client("m", "n")
			for i := range 200 {
				got, err := y.Get(t.Context(), []byte("key-"+strconv.Itoa(i)))
				require.NoError(t, err, "key %d", i)
				assert.Equal(t, "value-"+strconv.Itoa(i), string(got))
			}
			_, err = y.Get(t.Context(), []byte("later"))
			assert.Error(t, err)
			for i := range uint32(3) {
				rec, old := n.members.Record(i), a.members.Record(i)
				assert.Greater(t, rec.Term, old.Term+1000, fmt.Sprint("shard ", i, ": the old cluster may go on, and its terms"))
			}
			require.NoError(t, y.Close())
			require.NoError(t, m.Close())
			require.NoError(t, n.Close())
		})
	}
}
