package mvcc

import (
	"context"
	"fmt"
	"io"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// copySink applies an increment to a copy.
type copySink struct {
	copy map[string]string
	low  string
	all  bool // the interval has no lower bound
	new  map[string]string
}

func (s *copySink) Begin(low []byte) error {
	s.low, s.all, s.new = string(low), low == nil, map[string]string{}
	return nil
}

func (s *copySink) Put(key []byte, r io.Reader, _ int64) error {
	value, err := io.ReadAll(r)
	s.new[string(key)] = string(value)
	return err
}

func (s *copySink) Keep(key []byte) error {
	s.new[string(key)] = s.copy[string(key)]
	return nil
}

func (s *copySink) End(high []byte) error {
	maps.DeleteFunc(s.copy, func(key, _ string) bool {
		return (s.all || key > s.low) && (high == nil || key < string(high))
	})
	maps.Copy(s.copy, s.new)
	return nil
}

func recordsOf(t *testing.T, tx *Tx) map[string]string {
	all := map[string]string{}
	c := tx.Cursor()
	defer c.Release()
	for ok := c.First(); ok; ok = c.Next() {
		value, err := c.Value()
		require.NoError(t, err)
		all[string(c.Key())] = string(value)
	}
	require.NoError(t, c.Err())
	return all
}

// TestChangesTellOfShortLives: records that are in a backup, and in no page that was ever written, are deleted in the
// next increment, whatever has removed them. Between the backup and the increment there is nothing, a kill, or a
// read-only engine.
func TestChangesTellOfShortLives(t *testing.T) {
	base := func(i int) []byte { return fmt.Appendf(nil, "%05d", 10*i) }
	extra := func(i, j int) []byte { return fmt.Appendf(nil, "%05d", 10*i+1+j) } // eight after a record of the base
	for name, c := range map[string]struct {
		records   int // in the base
		deferred  bool
		kills     int
		readOnly  bool
		beside    bool
		cut       bool
		now       bool   // the increment is of memtables
		unchanged string // the value of a record of the base in the backup, if that differs from its value before and afterwards
	}{
		"kill":            {records: 3000, kills: 1},
		"three kills":     {records: 3000, kills: 3},
		"read only":       {records: 3000, kills: 1, readOnly: true},
		"beside":          {records: 3000, kills: 1, beside: true},
		"range":           {records: 3000, kills: 1, cut: true},
		"range read only": {records: 3000, kills: 1, cut: true, readOnly: true},
		"range beside":    {records: 3000, kills: 1, cut: true, beside: true},
		"no kill":         {records: 3000, deferred: true, now: true},
		"memtables":       {records: 3000, deferred: true, now: true, kills: 1},
		"root":            {kills: 1},
		"root, range":     {kills: 1, cut: true},
		"back again":      {records: 3000, kills: 1, unchanged: "another"},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem(0)
			opts := Options{Durability: Durable, MemoryLimit: 64 << 20, Thresholds: Thresholds{SyncBeside: true, CutFrom: 1}}
			opts.Manual, opts.Shares.Keys = true, -1 // so that changes are found from the pages
			if c.deferred {
				opts.Durability = Buffered
			}
			opts.Store.ChunkPages = 1 << 14
			e := openOn(t, mem, opts)
			update := func(change func(tx *Tx)) {
				tx := begin(t, e, TxOptions{})
				change(tx)
				require.NoError(t, tx.Commit())
			}
			update(func(tx *Tx) { // from here on the file has the flag for ranges
				require.NoError(t, tx.Put([]byte("x"), nil))
			})
			update(func(tx *Tx) { require.NoError(t, tx.DeleteRange([]byte("x"), []byte("y"))) })
			update(func(tx *Tx) {
				for i := range c.records {
					require.NoError(t, tx.Put(base(i), make([]byte, 100)))
				}
			})
			require.NoError(t, e.Checkpoint())
			update(func(tx *Tx) {
				for _, i := range []int{0, 1000, 2000, 3000} {
					for j := range 8 {
						require.NoError(t, tx.Put(extra(i, j), []byte("short")))
					}
				}
				if c.unchanged != "" {
					require.NoError(t, tx.Put(base(7), []byte(c.unchanged)))
				}
			})
			moment := (*Engine).ReadAt
			if c.now {
				moment = ReadNow
			}
			r, group, err := moment(e)
			require.NoError(t, err)
			require.Equal(t, c.now, !r.snap.view.Covers(r.snap.at))
			have := recordsOf(t, r)
			require.NoError(t, r.Rollback())
			var cut *vfs.Mem // once the range is durable, before the flush after it
			if durable := e.store.Durable(); c.cut {
				mem.OnOp(func(op vfs.Op) error {
					if cut == nil && op.Kind != vfs.OpMap && e.store.Durable() > durable {
						cut = mem.Clone()
					}
					return nil
				})
			}
			update(func(tx *Tx) {
				if c.unchanged != "" {
					require.NoError(t, tx.Put(base(7), make([]byte, 100)))
				}
				for _, i := range []int{0, 1000, 3000} {
					if c.cut {
						require.NoError(t, tx.DeleteRange(extra(i, 0), extra(i, 8)))
						continue
					}
					for j := range 8 {
						require.NoError(t, tx.Delete(extra(i, j)))
					}
				}
			})
			if c.kills > 0 {
				require.NoError(t, e.Sync())
			}
			for n := range c.kills {
				image := cut
				if !c.cut {
					image = mem.Crash(vfs.KeepNone, uint64(n))
				}
				mem.OnOp(nil)
				require.NoError(t, e.Close())
				mem.Release()
				mem = image
				opts.Store.ReadOnly, opts.Store.Beside = c.readOnly || c.beside, c.beside
				e = openOn(t, mem, opts)
				if c.cut && !c.beside {
					require.Equal(t, 3, e.recovery.stats.Ranges)
				}
			}
			defer mem.Release()
			defer func() { require.NoError(t, e.Close()) }()
			var tx *Tx
			if opts.Store.ReadOnly {
				tx = begin(t, e, TxOptions{ReadOnly: true})
			} else {
				tx, _, err = e.ReadAt()
				require.NoError(t, err)
			}
			defer tx.Rollback()
			if c.beside { // found from the pages, as by a reader that has not followed all groups
				e.recovery.follow.feed.beginAnew(group + 1)
			}
			want := recordsOf(t, tx)
			require.NotContains(t, want, string(extra(0, 3)))
			s := &copySink{copy: have}
			told := 0
			require.NoError(t, tx.Changes(context.Background(), group, nil, &countingSink{s, &told}))
			for key, value := range s.copy {
				if v, ok := want[key]; !ok || v != value {
					t.Fatalf("the copy has %q = %q", key, value)
				}
			}
			require.Len(t, s.copy, len(want))
			require.LessOrEqual(t, told, 600, "more leaves than redo names count as changed")
		})
	}
}

// countingSink counts the records of an increment.
type countingSink struct {
	ChangeSink
	told *int
}

func (s *countingSink) Put(key []byte, r io.Reader, length int64) error {
	*s.told++
	return s.ChangeSink.Put(key, r, length)
}
