package writeset

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// sliceCursor is a Cursor over sorted keys. It panics on moves that the contract does not define, and fails when
// fuel runs out, unless fuel is negative.
type sliceCursor struct {
	keys   [][]byte
	at     int // -1 and len(keys) are before and after all keys
	placed bool
	fuel   int
	err    error
}

var errNoFuel = errors.New("no fuel")

func newSliceCursor(keys ...string) *sliceCursor {
	c := &sliceCursor{fuel: -1}
	for _, k := range keys {
		c.keys = append(c.keys, []byte(k))
	}
	return c
}

func (c *sliceCursor) move(to int) bool {
	if c.fuel == 0 {
		c.err = errNoFuel
		return false
	}
	c.fuel--
	c.placed, c.at = true, max(-1, min(to, len(c.keys)))
	return c.at >= 0 && c.at < len(c.keys)
}

func (c *sliceCursor) step(by int) bool {
	if !c.placed {
		panic("moved relative to nowhere")
	}
	return c.move(c.at + by)
}

func (c *sliceCursor) First() bool { return c.move(0) }
func (c *sliceCursor) Last() bool  { return c.move(len(c.keys) - 1) }
func (c *sliceCursor) Next() bool  { return c.step(1) }
func (c *sliceCursor) Prev() bool  { return c.step(-1) }
func (c *sliceCursor) Key() []byte { return c.keys[c.at] }
func (c *sliceCursor) Err() error  { return c.err }

func (c *sliceCursor) Seek(key []byte) bool {
	at, _ := slices.BinarySearchFunc(c.keys, key, bytes.Compare)
	return c.move(at)
}

func TestMergeEmpty(t *testing.T) {
	m := NewMerge(newSliceCursor(), nil)
	require.False(t, m.Next())
	require.False(t, m.Prev())
	require.False(t, m.First())
	require.False(t, m.Last())
	require.False(t, m.Seek(nil))
	require.Nil(t, m.Key())
	_, ok := m.Entry()
	require.False(t, ok)
	require.NoError(t, m.Err())
}

// TestMergeScripts moves over the records "b", "d" and "f" and checks the keys found. In a script, ">" is Next, "<"
// Prev, "^" First, "$" Last, "?x" Seek, "+x" Put and "-x" Delete. The key expected after a move follows it, or "."
// for none.
func TestMergeScripts(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"forward", "^b >d >f >. >. <f"},
		{"backward", "$f <d <b <. <. >b"},
		{"a new cursor goes to the first", ">b"},
		{"a new cursor goes to the last", "<f"},
		{"seek", "?a b ?b b ?c d ?g . <f"},
		{"failed seek stays past the end", "?g . >. +h >. <h"},
		{"writes before the first move", "+a +c +g ^a >b >c >d >f >g >."},
		{"first write after a move", "^b +c >c >d"},
		{"first write behind a move", "^b >d +c >f <d <c <b"},
		{"first write after running off", "^b >d >f >. +z >. <z <f"},
		{"insert at the front", "^b +a <a >b"},
		{"delete the present key", "^b >d -d >f <b"},
		{"delete the present key, go back", "^b >d -d <b >f"},
		{"delete the present key twice over", "^b -b +b >d <b"},
		{"delete a key of one's own", "+c ?c c -c >d <b"},
		{"delete what comes next", "^b -d >f >. <f <b"},
		{"delete everything", "^b -b -d -f >. <. >. ^. $."},
		{"delete in a loop", "^b -b >d -d >f -f >."},
		{"delete in a loop backward", "$f -f <d -d <b -b <."},
		{"delete an absent key", "-c -x ^b >d >f >."},
		{"put the present key", "^b +b >d +d >f"},
		{"put behind and ahead", "^b >d +c +e >e <d <c <b"},
		{"turn on a key of one's own", "+c ?c c <b >c >d <c"},
		{"turn past a deleted key", "-d ^b >f <b >f"},
		{"only one's own", "-b -d -f +a +z ^a >z >. <z <a <."},
		{"chase one's own puts", "+c ?c c +c1 >c1 +c2 >c2 +c3 >c3 >d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w Set
			m := NewMerge(newSliceCursor("b", "d", "f"), &w)
			words := bytes.Fields([]byte(c.script))
			for i := 0; i < len(words); i++ {
				arg := words[i][1:]
				var found bool
				switch words[i][0] {
				case '+':
					w.Put(arg, nil)
					continue
				case '-':
					w.Delete(arg)
					continue
				case '>':
					found = m.Next()
				case '<':
					found = m.Prev()
				case '^':
					found = m.First()
				case '$':
					found = m.Last()
				case '?':
					found = m.Seek(arg)
					i++
					arg = words[i]
				}
				if string(arg) == "." {
					require.False(t, found, "step %d", i)
					require.Nil(t, m.Key())
				} else {
					require.True(t, found, "step %d", i)
					require.Equal(t, string(arg), string(m.Key()), "step %d", i)
				}
			}
		})
	}
}

func TestMergeEntryIsOfNow(t *testing.T) {
	var w Set
	m := NewMerge(newSliceCursor("b", "d"), &w)
	require.True(t, m.First())
	_, ok := m.Entry()
	require.False(t, ok, "the snapshot's")
	w.Put([]byte("b"), []byte("1"))
	e, ok := m.Entry()
	require.True(t, ok)
	require.Equal(t, "1", string(e.Value))
	require.True(t, m.Next())
	require.Equal(t, "d", string(m.Key()))
	_, ok = m.Entry()
	require.False(t, ok)
	require.True(t, m.Prev())
	e, ok = m.Entry()
	require.True(t, ok)
	require.Equal(t, "1", string(e.Value))
	w.Put([]byte("b"), []byte("2"))
	e, _ = m.Entry()
	require.Equal(t, "2", string(e.Value))
	w.Delete([]byte("b"))
	e, ok = m.Entry()
	require.True(t, ok)
	require.True(t, e.Deleted)
	require.Equal(t, "b", string(m.Key()))
}

func TestMergeStopsAtError(t *testing.T) {
	for _, written := range []bool{false, true} {
		for fuel := range 3 {
			var w Set
			if written {
				w.Put([]byte("z"), nil)
			}
			base := newSliceCursor("a", "b", "c", "d")
			base.fuel = fuel
			m := NewMerge(base, &w)
			n := 0
			for ok := m.First(); ok; ok = m.Next() {
				n++
			}
			require.Equal(t, fuel, n, "an error is not the end of the records")
			require.ErrorIs(t, m.Err(), errNoFuel)
			require.False(t, m.Seek([]byte("y")))
			require.False(t, m.Last())
			require.Nil(t, m.Key())
		}
	}
}

// mergeModel is the view that a Merge should show, and the position that it should have.
type mergeModel struct {
	base   []string
	writes map[string]*string // nil: deleted
	at     whereabouts
	key    string
}

// view returns the keys in order.
func (m *mergeModel) view() []string {
	keys := map[string]bool{}
	for _, k := range m.base {
		keys[k] = true
	}
	for k, v := range m.writes {
		keys[k] = v != nil
	}
	maps.DeleteFunc(keys, func(_ string, there bool) bool { return !there })
	return slices.Sorted(maps.Keys(keys))
}

// arrive moves to keys[i], or off the end if there is no such key.
func (m *mergeModel) arrive(keys []string, i int, off whereabouts) bool {
	if i < 0 || i >= len(keys) {
		m.at = off
		return false
	}
	m.at, m.key = onRecord, keys[i]
	return true
}

func (m *mergeModel) move(op byte, key string) bool {
	keys := m.view()
	i, found := slices.BinarySearch(keys, m.key)
	switch {
	case op == 'F', op == 'N' && (m.at == nowhere || m.at == beforeStart):
		return m.arrive(keys, 0, pastEnd)
	case op == 'L', op == 'P' && (m.at == nowhere || m.at == pastEnd):
		return m.arrive(keys, len(keys)-1, beforeStart)
	case op == 'S':
		i, _ = slices.BinarySearch(keys, key)
		return m.arrive(keys, i, pastEnd)
	case m.at != onRecord:
		return false
	case op == 'N':
		if found {
			i++
		}
		return m.arrive(keys, i, pastEnd)
	default:
		return m.arrive(keys, i-1, beforeStart)
	}
}

// runMergeScript runs a script of two bytes per step on a Merge and on the model, and compares them.
func runMergeScript(t *testing.T, script []byte) {
	if len(script) < 1 {
		return
	}
	universe := []string{"", "\x00", "a", "a\x00", "ab", "abcdefgh", "abcdefghi", "abcdefgh\x00", "b", "c", "d", "\xff", "\xff\xff"}
	model := &mergeModel{writes: map[string]*string{}}
	for i, k := range universe {
		if script[0]>>(i%8)&1 != 0 {
			model.base = append(model.base, k)
		}
	}
	slices.Sort(model.base)
	base := newSliceCursor(model.base...)
	var w Set
	m := NewMerge(base, &w)
	for step := 1; step+1 < len(script); step += 2 {
		key := universe[int(script[step+1])%len(universe)]
		op := "NNNPPPFLSSpppdd"[int(script[step])%15]
		where := fmt.Sprintf("step %d %c %q, base %q", step, op, key, model.base)
		switch op {
		case 'p':
			value := fmt.Sprint(step)
			w.Put([]byte(key), []byte(value))
			model.writes[key] = &value
		case 'd':
			w.Delete([]byte(key))
			model.writes[key] = nil
		default:
			var found bool
			switch op {
			case 'N':
				found = m.Next()
			case 'P':
				found = m.Prev()
			case 'F':
				found = m.First()
			case 'L':
				found = m.Last()
			case 'S':
				found = m.Seek([]byte(key))
			}
			require.Equal(t, model.move(op, key), found, where)
		}
		if model.at != onRecord {
			require.Nil(t, m.Key(), where)
			continue
		}
		require.Equal(t, model.key, string(m.Key()), where)
		value, written := model.writes[model.key]
		e, ok := m.Entry()
		require.Equal(t, written, ok, where)
		switch {
		case !written:
			require.Equal(t, model.key, string(base.Key()), where)
		case value == nil:
			require.True(t, e.Deleted, where)
		default:
			require.Equal(t, *value, string(e.Value), where)
		}
	}
}

func TestMergeModel(t *testing.T) {
	t.Parallel()
	scripts := 10_000
	if testing.Short() {
		scripts = 1_000
	}
	rng := rand.New(rand.NewPCG(1, 2))
	script := make([]byte, 0, 128)
	for range scripts {
		script = script[:1+rng.IntN(cap(script)-1)]
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		runMergeScript(t, script)
		if t.Failed() {
			t.Logf("script %q", script)
			return
		}
	}
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte("\x55NaNbpcPd"))
	f.Add([]byte{0xff, 6, 0, 10, 3, 0, 0, 13, 3, 3, 0})
	f.Fuzz(runMergeScript)
}

func BenchmarkMergeNext(b *testing.B) {
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("user%012d", i)
	}
	run := func(b *testing.B, c Cursor) {
		ok := false
		for range b.N {
			if !ok {
				ok = c.First()
				continue
			}
			ok = c.Next()
		}
	}
	b.Run("bare", func(b *testing.B) { run(b, newSliceCursor(keys...)) })
	for _, writes := range []int{0, 1, 1_000, 10_000} {
		b.Run(fmt.Sprint(writes), func(b *testing.B) {
			var w Set
			for i := range writes {
				w.Put(fmt.Appendf(nil, "user%012d+", i*len(keys)/writes), nil)
			}
			m := NewMerge(newSliceCursor(keys...), &w)
			run(b, &m)
		})
	}
}
