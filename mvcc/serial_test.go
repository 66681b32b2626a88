package mvcc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type readCase struct {
	name   string
	read   func(t *testing.T, tx *Tx)
	other  string // keys with a prefix: + puts the key, - deletes it
	allows bool
}

// beside returns an absent key that is in none of the ranges of the case. The other transaction writes it if it is to
// change nothing that was read.
func (c readCase) beside() string {
	if strings.HasPrefix(c.name, "last") {
		return "A"
	}
	return "~"
}

// TestSerializableReads lets one transaction read, another one commit, and then the first one commit. The first one
// must fail if and only if the other one has changed what it read.
func TestSerializableReads(t *testing.T) {
	seek := func(key string, steps string) func(t *testing.T, tx *Tx) {
		return func(t *testing.T, tx *Tx) {
			c := tx.Cursor()
			c.Seek([]byte(key))
			for _, s := range steps {
				switch s {
				case '<':
					c.Prev()
				case '>':
					c.Next()
				}
			}
			require.NoError(t, c.Err())
		}
	}
	last := func(steps string) func(t *testing.T, tx *Tx) {
		return func(t *testing.T, tx *Tx) {
			c := tx.Cursor()
			c.Last()
			for _, s := range steps {
				switch s {
				case '<':
					c.Prev()
				case '>':
					c.Next()
				}
			}
			require.NoError(t, c.Err())
		}
	}
	first := func(t *testing.T, tx *Tx) { tx.Cursor().First() }
	reads := func(key string) func(t *testing.T, tx *Tx) {
		return func(t *testing.T, tx *Tx) { get(t, tx, key) }
	}
	count := func(t *testing.T, tx *Tx) {
		_, err := tx.Len()
		require.NoError(t, err)
	}
	// The records are b, d, f, h.
	for _, c := range []readCase{
		{"present key changed", reads("d"), "+d", false},
		{"present key deleted", reads("d"), "-d", false},
		{"another key changed", reads("d"), "+f", true},
		{"absent key inserted", reads("e"), "+e", false},
		{"neighbour of absent key", reads("e"), "+e1", true},
		{"first, insert before", first, "+a", false},
		{"first, insert behind", first, "+c", true},
		{"first deleted", first, "-b", false},
		{"last, insert behind", last(""), "+i", false},
		{"last, insert before", last(""), "+g", true},
		{"seek, insert in the gap", seek("c", ""), "+c5", false},
		{"seek, insert before the gap", seek("c", ""), "+b5", true},
		{"seek behind the end", seek("i", ""), "+j", false},
		{"step, insert in the range", seek("b", ">>"), "+e", false},
		{"step, change in the range", seek("b", ">>"), "+d", false},
		{"step, insert behind the range", seek("b", ">>"), "+g", true},
		{"step back, gap of the seek", seek("a", ">>>>>"), "+a5", false},
		{"there and back, gap of the seek", seek("a", "><"), "+a5", false},
		{"there and back, behind the turn", seek("a", "><"), "+c", false},
		{"back over the seek", seek("f", "<"), "+e", false},
		{"back over the start", seek("b", "<"), "+a", false},
		{"off the start and on", seek("d", "<<>"), "+c", false},
		{"last and back", last("<"), "+g", false},
		{"last, back and on", last("<>"), "+i", false},
		{"last, back and on, inside", last("<>"), "+g", false},
		{"last, back and on, outside", last("<>"), "+e", true},
		{"length, insert", count, "+x", false},
		{"length, delete", count, "-b", false},
	} {
		test := func(t *testing.T, unrelated int) {
			e := newEngine(t, Options{Manual: true})
			for _, k := range []string{"b", "d", "f", "h"} {
				put(t, e, k, "old")
			}
			tx := begin(t, e, TxOptions{Serializable: true})
			c.read(t, tx)
			require.NoError(t, tx.Put([]byte("zz"), []byte("1")))
			other := begin(t, e, TxOptions{})
			if c.other[0] == '+' {
				require.NoError(t, other.Put([]byte(c.other[1:]), []byte("new")))
			} else {
				require.NoError(t, other.Delete([]byte(c.other[1:])))
			}
			require.NoError(t, other.Commit())
			for range unrelated {
				tx := begin(t, e, TxOptions{})
				require.NoError(t, tx.Delete([]byte(c.beside())))
				require.NoError(t, tx.Commit())
			}
			if c.allows {
				require.NoError(t, tx.Commit())
			} else {
				require.ErrorIs(t, tx.Commit(), ErrConflict)
			}
		}
		t.Run(c.name, func(t *testing.T) { test(t, 0) })
		t.Run(c.name+", not in the list any more", func(t *testing.T) { test(t, 2) })
	}
}

// TestReadingMakesWritesConflict: if a transaction has read anything, every key that it writes is checked for
// conflicts.
func TestReadingMakesWritesConflict(t *testing.T) {
	for _, c := range []struct {
		name string
		read func(tx *Tx)
		lost bool
	}{
		{"nothing", func(*Tx) {}, false},
		{"key", func(tx *Tx) { tx.Get([]byte("k")) }, true},
		{"has", func(tx *Tx) { tx.Has([]byte("k")) }, true},
		{"length", func(tx *Tx) { tx.Len() }, true},
		{"cursor", func(tx *Tx) { tx.Cursor().First() }, true},
		{"reader", func(tx *Tx) { tx.ValueReader([]byte("k")) }, true},
		{"cursor not moved", func(tx *Tx) { tx.Cursor() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEngine(t, Options{})
			put(t, e, "k", "0")
			tx := begin(t, e, TxOptions{})
			c.read(tx)
			require.NoError(t, tx.Put([]byte("w"), []byte("mine")))
			put(t, e, "w", "theirs")
			if c.lost {
				require.ErrorIs(t, tx.Commit(), ErrConflict)
			} else {
				require.NoError(t, tx.Commit())
			}
		})
	}
}
