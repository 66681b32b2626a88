package dbm

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// withRecords returns a database with the given keys. The value of each key is the key itself.
func withRecords(t *testing.T, keys ...string) *DB {
	t.Helper()
	db := newDB(t, nil)
	require.NoError(t, db.Update(func(tx *Tx) error {
		for _, k := range keys {
			require.NoError(t, tx.Put([]byte(k), []byte(k)))
		}
		return nil
	}))
	return db
}

// TestCursorScripts moves cursors as scripts say. Each move is followed by the expected key, or "-" for none.
func TestCursorScripts(t *testing.T) {
	for _, script := range []string{
		"first=b next=d next=f next=- next=- prev=f prev=d",
		"last=f prev=d prev=b prev=- prev=- next=b",
		"next=b", "prev=f",
		"seek:a=b seek:b=b seek:c=d seek:f=f seek:g=- prev=f",
		"seek:g=- next=- prev=f next=-",
		"seek:a=b prev=- next=b",
		"first=b prev=- prev=- next=b next=d",
		// These write through the transaction.
		"first=b put:a=. next=d",
		"first=b put:c=. next=c next=d prev=c prev=b",
		"seek:d=d put:c=. prev=c",
		"first=b del:d=. next=f",
		"first=b del:b=. next=d",
		"first=b delete=. next=d prev=-",
		"seek:d=d delete=. prev=b next=f",
		"last=f delete=. next=- prev=d",
		"first=b delete=. first=d delete=. first=f delete=. first=- last=- next=-",
		"seek:d=d delete=. put:d=. next=f prev=d",
		"seek:d=d delete=. put:e=. next=e",
		"seek:g=- put:h=. next=- prev=h",
		"seek:g=- put:h=. last=h",
		"first=b del:b=. del:d=. del:f=. next=- prev=-",
		"put:a=. put:g=. first=a next=b next=d next=f next=g next=- prev=g",
		"last=f put:d=. prev=d prev=b",
	} {
		t.Run(script, func(t *testing.T) {
			db := withRecords(t, "b", "d", "f")
			require.NoError(t, db.Update(func(tx *Tx) error {
				c := tx.Cursor()
				for _, word := range strings.Fields(script) {
					do, want, _ := strings.Cut(word, "=")
					runWord(t, tx, c, do, want)
				}
				return c.Err()
			}))
		})
	}
}

func runWord(t *testing.T, tx *Tx, c *Cursor, do, want string) {
	t.Helper()
	verb, arg, _ := strings.Cut(do, ":")
	moves := map[string]func() bool{
		"first": c.First, "last": c.Last, "next": c.Next, "prev": c.Prev,
		"seek": func() bool { return c.Seek([]byte(arg)) },
	}
	switch verb {
	case "put":
		require.NoError(t, tx.Put([]byte(arg), []byte(arg)))
	case "del":
		require.NoError(t, tx.Delete([]byte(arg)))
	case "delete":
		require.NoError(t, c.Delete())
		require.Nil(t, c.Key())
		require.Nil(t, c.Value())
		require.ErrorIs(t, c.Delete(), ErrNotFound)
	default:
		found := moves[verb]()
		require.Equal(t, want != "-", found, do)
		if found {
			require.Equal(t, want, string(c.Key()), do)
			require.Equal(t, want, string(c.Value()), do)
		} else {
			require.Nil(t, c.Key())
			require.Nil(t, c.Value())
			require.ErrorIs(t, c.Delete(), ErrNotFound)
		}
	}
}

// TestCursorOnChangedRecord: a cursor shows what the transaction has since written to the record at which it is.
func TestCursorOnChangedRecord(t *testing.T) {
	db := withRecords(t, "b", "d")
	require.NoError(t, db.Update(func(tx *Tx) error {
		c := tx.Cursor()
		require.True(t, c.First())
		require.NoError(t, tx.Put([]byte("b"), []byte("new")))
		require.Equal(t, "new", string(c.Value()))
		require.NoError(t, tx.Delete([]byte("b")))
		require.Equal(t, "b", string(c.Key()))
		require.Nil(t, c.Value())
		require.NoError(t, c.Err())
		return nil
	}))
}

// TestRanges compares the iterators with a sorted list, for all bounds around its keys.
func TestRanges(t *testing.T) {
	keys := []string{"", "a", "aa", "a\xff", "a\xffz", "b", "\xff", "\xff\xff", "\xff\xff\x00"}
	db := withRecords(t, keys...)
	slices.Sort(keys)
	bounds := [][]byte{nil}
	for _, k := range append(slices.Clone(keys), "a\x00", "ab", "c", "\xff\xff\xff") {
		bounds = append(bounds, []byte(k))
	}
	in := func(from, to []byte) (want []string) {
		for _, k := range keys {
			if k >= string(from) && (to == nil || k < string(to)) {
				want = append(want, k)
			}
		}
		return want
	}
	require.NoError(t, db.View(func(tx *Tx) error {
		require.Equal(t, keys, list(tx.All()))
		for _, from := range bounds {
			for _, to := range bounds {
				want := in(from, to)
				require.Equal(t, want, list(tx.Range(from, to)), "%q %q", from, to)
				slices.Reverse(want)
				require.Equal(t, want, list(tx.Backward(from, to)), "%q %q", from, to)
			}
			var want []string
			for _, k := range keys {
				if strings.HasPrefix(k, string(from)) {
					want = append(want, k)
				}
			}
			require.Equal(t, want, list(tx.Prefix(from)), "%q", from)
		}
		for range 2 { // an iterator may be used again, and may be left early
			n := 0
			for range tx.All() {
				if n++; n == 3 {
					break
				}
			}
		}
		return tx.Err()
	}))
}

// TestRangesInRanges: nested iterations, also ones that are left early or end in a panic, each have a cursor of
// their own.
func TestRangesInRanges(t *testing.T) {
	keys := []string{"a", "b", "c", "d", "e"}
	db := withRecords(t, keys...)
	require.NoError(t, db.View(func(tx *Tx) error {
		require.Panics(t, func() {
			for range tx.All() {
				panic("a user's")
			}
		})
		var outer []string
		for k := range tx.All() {
			outer = append(outer, string(k))
			for k := range tx.Backward(nil, nil) {
				if string(k) == "c" {
					break
				}
			}
			require.Equal(t, keys, list(tx.All()))
			require.NoError(t, db.View(func(tx *Tx) error {
				require.Equal(t, keys[2:], list(tx.Range([]byte("c"), nil)))
				return nil
			}))
		}
		require.Equal(t, keys, outer)
		next, stop := iter.Pull2(tx.Range([]byte("b"), nil))
		for _, want := range keys[1:4] {
			k, _, ok := next()
			require.True(t, ok)
			require.Equal(t, want, string(k))
			require.Equal(t, keys, list(tx.All()))
		}
		stop()
		require.Equal(t, keys, list(tx.All()))
		return nil
	}))
}

func list(records iter.Seq2[[]byte, []byte]) (keys []string) {
	for k, v := range records {
		if !bytes.Equal(k, v) {
			panic(fmt.Sprintf("value %q of key %q", v, k))
		}
		keys = append(keys, string(k))
	}
	return keys
}

// TestWritesDuringIteration: each record that exists throughout the iteration is visited once.
func TestWritesDuringIteration(t *testing.T) {
	var keys []string
	for i := range 500 {
		keys = append(keys, fmt.Sprintf("%04d", 2*i))
	}
	for name, all := range map[string]func(*Tx) iter.Seq2[[]byte, []byte]{
		"forward": (*Tx).All, "backward": func(tx *Tx) iter.Seq2[[]byte, []byte] { return tx.Backward(nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			db := withRecords(t, keys...)
			rng := rand.New(rand.NewPCG(1, 2))
			require.NoError(t, db.Update(func(tx *Tx) error {
				var visited []string
				for k := range all(tx) {
					if key := string(k); key[3]%2 == 0 { // a key that was not put here
						visited = append(visited, key)
					}
					require.NoError(t, tx.Delete(k))
					odd := fmt.Appendf(nil, "%04d", 2*rng.IntN(500)+1)
					require.NoError(t, tx.Put(odd, odd))
				}
				slices.Sort(visited)
				require.Equal(t, keys, visited)
				return tx.Err()
			}))
			require.NoError(t, db.View(func(tx *Tx) error {
				for _, k := range list(tx.All()) {
					require.Equal(t, 1, int(k[3]%2))
				}
				return nil
			}))
		})
	}
}

// TestCursorModel compares several cursors of a transaction that writes with a model, on a tree of several levels.
func TestCursorModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var keys []string
	for range 3000 {
		keys = append(keys, fmt.Sprintf("%05d", rng.IntN(10000)))
	}
	db := withRecords(t, keys...)
	slices.Sort(keys)
	sorted := slices.Compact(keys)
	steps := 30_000
	if testing.Short() {
		steps = 5_000
	}
	require.NoError(t, db.Update(func(tx *Tx) error {
		var cursors []*cursorModel
		for range 3 {
			cursors = append(cursors, &cursorModel{c: tx.Cursor(), place: -1})
		}
		for range steps {
			m := cursors[rng.IntN(len(cursors))]
			near := m.key
			if rng.IntN(3) == 0 || near == "" {
				near = fmt.Sprintf("%05d", rng.IntN(10000))
			}
			switch rng.IntN(10) {
			case 0:
				k := near + string(rune('a'+rng.IntN(3)))
				require.NoError(t, tx.Put([]byte(k), []byte(k)))
				if i, found := slices.BinarySearch(sorted, k); !found {
					sorted = slices.Insert(sorted, i, k)
				}
			case 1:
				require.NoError(t, tx.Delete([]byte(near)))
				if i, found := slices.BinarySearch(sorted, near); found {
					sorted = slices.Delete(sorted, i, i+1)
				}
			case 2:
				m.check(t, m.c.Seek([]byte(near)), sorted, near, true)
			case 3, 4, 5, 6:
				m.step(t, sorted, true)
			default:
				m.step(t, sorted, false)
			}
		}
		return tx.Err()
	}))
}

// TestCursorModelReadOnly moves cursors of a transaction that only reads: over records in memory, in leaves, and beside
// leaves, as long keys and values are.
func TestCursorModelReadOnly(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var keys []string
	for i := range 3000 {
		k := fmt.Sprintf("%05d", rng.IntN(10000))
		if i%50 == 0 {
			k += strings.Repeat("x", 1<<rng.IntN(13))
		}
		keys = append(keys, k)
	}
	db := withRecords(t, keys...)
	slices.Sort(keys)
	sorted := slices.Compact(keys)
	for _, what := range []string{"memory", "file"} {
		t.Run(what, func(t *testing.T) {
			require.NoError(t, db.View(func(tx *Tx) error {
				m := &cursorModel{c: tx.Cursor(), place: -1}
				for !m.moved || m.place == 0 {
					m.step(t, sorted, true)
				}
				for range 5000 {
					switch n := rng.IntN(40); {
					case n == 0:
						near := fmt.Sprintf("%05d", rng.IntN(10000))
						m.check(t, m.c.Seek([]byte(near)), sorted, near, true)
					case n < 35:
						m.step(t, sorted, true)
					default:
						m.step(t, sorted, false)
					}
				}
				return tx.Err()
			}))
			require.NoError(t, db.Compact(t.Context(), nil))
		})
	}
}

// cursorModel knows where a cursor should be: at a key, which may have been deleted, or beyond an end.
type cursorModel struct {
	c     *Cursor
	key   string
	place int // -1 before the first key or unpositioned, 0 at key, 1 after the last key
	moved bool
}

// step moves the cursor by one record.
func (m *cursorModel) step(t *testing.T, sorted []string, forward bool) {
	t.Helper()
	found := false
	if forward {
		found = m.c.Next()
	} else {
		found = m.c.Prev()
	}
	switch {
	case m.place == 0 && forward:
		m.check(t, found, sorted, m.key+"\x00", true)
	case m.place == 0:
		m.check(t, found, sorted, m.key, false)
	case forward && (m.place < 0 || !m.moved):
		m.check(t, found, sorted, "", true)
	case !forward && (m.place > 0 || !m.moved):
		m.check(t, found, sorted, "\xff", false)
	default:
		require.False(t, found)
	}
}

// check compares the result of a move to the first record at or after from, or to the last one before it.
func (m *cursorModel) check(t *testing.T, found bool, sorted []string, from string, forward bool) {
	t.Helper()
	m.moved = true
	i, _ := slices.BinarySearch(sorted, from)
	if !forward {
		i--
	}
	require.Equal(t, 0 <= i && i < len(sorted), found)
	if found {
		m.place, m.key = 0, string(m.c.Key())
		require.Equal(t, sorted[i], m.key)
		require.Equal(t, sorted[i], string(m.c.Value()))
		return
	}
	m.place = -1
	if forward {
		m.place = 1
	}
}
