package mvcc

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// spilling returns options with which write sets leave memory and batches are written early all the time.
func spilling(d Durability) Options {
	o := tiny(d)
	o.Store.SegmentPages, o.Manual = 32, true
	o.Shares.WriteSets, o.Shares.Batch = 24<<10, 64<<10
	return o
}

// model is a sorted map.
type model map[string]string

func (m model) keys() []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (m model) clone() model {
	c := model{}
	for k, v := range m {
		c[k] = v
	}
	return c
}

// spillKey is a key of a random kind; some keys are too long for a leaf.
func spillKey(rng *rand.Rand) string {
	n := rng.IntN(4000)
	if n%97 == 0 {
		return fmt.Sprintf("long%04d", n) + string(bytes.Repeat([]byte{'k'}, 1000+n/2))
	}
	return fmt.Sprintf("key%05d", n)
}

// spillValue is a value of a random kind: in the leaf, in a run, or large.
func spillValue(rng *rand.Rand) string {
	size := rng.IntN(120)
	switch rng.IntN(60) {
	case 0:
		size = 2000 + rng.IntN(9000)
	case 1:
		size = 1000 + rng.IntN(900)
	}
	if rng.IntN(2000) == 0 {
		size = 150 << 10
	}
	return string(bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, size)) + fmt.Sprint(rng.IntN(1e6))
}

// verifyTx compares all that a transaction sees with a model: by key, and by cursors in both directions.
func verifyTx(t *testing.T, tx *Tx, want model, rng *rand.Rand) {
	t.Helper()
	keys := want.keys()
	n, err := tx.Len()
	require.NoError(t, err)
	require.EqualValues(t, len(keys), n)
	c := tx.Cursor()
	i := 0
	for ok := c.First(); ok; ok = c.Next() {
		require.Less(t, i, len(keys))
		require.Equal(t, keys[i], string(c.Key()))
		v, err := c.Value()
		require.NoError(t, err)
		require.True(t, want[keys[i]] == string(v), "value of %.20q", keys[i])
		i++
	}
	require.NoError(t, c.Err())
	require.Equal(t, len(keys), i)
	for ok := c.Last(); ok; ok = c.Prev() {
		i--
		require.Equal(t, keys[i], string(c.Key()))
	}
	require.Zero(t, i)
	for range 50 {
		key := spillKey(rng)
		v, ok, err := tx.Get([]byte(key))
		require.NoError(t, err)
		value, there := want[key]
		require.Equal(t, there, ok)
		require.True(t, value == string(v))
		at, found := slices.BinarySearch(keys, key)
		require.Equal(t, at < len(keys), c.Seek([]byte(key)))
		if at < len(keys) {
			require.Equal(t, keys[at], string(c.Key()))
		}
		require.Equal(t, at > 0, c.Prev())
		if at > 0 {
			require.Equal(t, keys[at-1], string(c.Key()))
		}
		has, err := tx.Has([]byte(key))
		require.NoError(t, err)
		require.Equal(t, found, has)
	}
}

// TestSpillModel: transactions whose write sets are spilled many times see and commit the same as a sorted map.
func TestSpillModel(t *testing.T) {
	inTurn(t)
	t.Parallel()
	seeds := uint64(6)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := Durability(seed % 3)
			e := newEngine(t, spilling(d))
			rng := rand.New(rand.NewPCG(seed, 7))
			committed := model{}
			for round := range 6 {
				tx := begin(t, e, TxOptions{Serializable: rng.IntN(3) == 0})
				now := committed.clone()
				held := tx.Cursor() // keeps its key, whatever leaves memory meanwhile
				var at string
				for range 500 + rng.IntN(2500) {
					key := spillKey(rng)
					switch rng.IntN(10) {
					case 0, 1, 2:
						require.NoError(t, tx.Delete([]byte(key)))
						delete(now, key)
					default:
						value := spillValue(rng)
						require.NoError(t, tx.Put([]byte(key), []byte(value)))
						now[key] = value
					}
					if rng.IntN(20) == 0 {
						at = moveHeld(t, held, at, now, rng)
					}
				}
				require.NotNil(t, tx.set.Spilled(), "nothing was spilled")
				if rng.IntN(2) == 0 {
					verifyTx(t, tx, now, rng)
				}
				if rng.IntN(4) == 0 {
					require.NoError(t, tx.Rollback())
				} else {
					require.NoError(t, tx.Commit())
					committed = now
				}
				if round%2 == 0 {
					require.NoError(t, e.Check(context.Background()))
				}
				reader := begin(t, e, TxOptions{})
				verifyTx(t, reader, committed, rng)
				require.NoError(t, reader.Rollback())
			}
			require.Zero(t, e.tree.sets.budget.Bytes())
		})
	}
}

// moveHeld moves a cursor that was positioned before later writes, and returns where it is.
func moveHeld(t *testing.T, c *Cursor, at string, now model, rng *rand.Rand) string {
	keys := now.keys()
	switch i, found := slices.BinarySearch(keys, at); rng.IntN(3) {
	case 0:
		key := spillKey(rng)
		i, _ = slices.BinarySearch(keys, key)
		require.Equal(t, i < len(keys), c.Seek([]byte(key)))
		if i == len(keys) {
			require.True(t, c.Last())
			i--
		}
		require.Equal(t, keys[i], string(c.Key()))
		return keys[i]
	case 1:
		if at == "" {
			return at
		}
		if found {
			i++
		}
		if i == len(keys) {
			require.False(t, c.Next())
			require.True(t, c.Last())
			i--
		} else {
			require.True(t, c.Next())
		}
		require.Equal(t, keys[i], string(c.Key()))
		v, err := c.Value()
		require.NoError(t, err)
		require.True(t, now[keys[i]] == string(v))
		return keys[i]
	default:
		if at == "" {
			return at
		}
		if i == 0 {
			require.False(t, c.Prev())
			require.True(t, c.First())
			i++
		} else {
			require.True(t, c.Prev())
		}
		require.Equal(t, keys[i-1], string(c.Key()))
		return keys[i-1]
	}
}
