package membership

import (
	"testing"

	"flashdbm/servers/circle"
	"flashdbm/servers/cluster"
	"flashdbm/servers/replica"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProposalOfAFormerPrimary: a part is handed over only while both shards still have the primaries that made the
// proposal.
func TestProposalOfAFormerPrimary(t *testing.T) {
	c := cluster.NewMemory()
	defer c.Close()
	ctx := t.Context()
	m := &Node{o: Options{Cluster: c}, ctx: ctx}
	set := func(number uint32, term uint64) uint64 {
		rec := replica.Record{Term: term, Primary: "a", Set: []string{"a"}}
		v, err := c.Get(ctx, shardKey(number))
		require.NoError(t, err)
		revision, err := c.CompareAndSet(ctx, shardKey(number), v.Revision, rec.Data())
		require.NoError(t, err)
		return revision
	}
	pair := circle.Pair{From: 0, To: 1}
	s := State{
		Circle: circle.Assignment{Shards: []uint32{0}, Next: []uint32{1}}, Records: map[uint32]replica.Record{0: {Revision: set(0, 1)}, 1: {Revision: set(1, 1)}},
	}
	for _, number := range []uint32{0, 1} {
		was := s.Records[number]
		now := set(number, 2)
		m.ProposeCircle(s, pair)
		v, err := c.Get(ctx, circleKey)
		require.NoError(t, err)
		require.Zero(t, v.Revision, "shard %d has another primary", number)
		require.NotEqual(t, now, was.Revision)
		s.Records[number] = replica.Record{Revision: now}
	}
	m.ProposeCircle(s, pair)
	v, err := c.Get(ctx, circleKey)
	require.NoError(t, err)
	assert.JSONEq(t, `{"shards":[1]}`, string(v.Data))
}
