package mvcc

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test of isolation: many goroutines run random transactions, which note what they have read and written, during
// flushes, folds, checkpoints and the reuse of segments. Afterwards the history is replayed: each read must equal the
// state that the commits up to its snapshot have left, with the transaction's own writes applied to it.

// A past is what one transaction did.
type past struct {
	id           int
	snapshot     uint64
	seq          uint64 // of its commit; 0 if it did not commit
	blind        bool
	serializable bool
	acked        uint64 // greatest Seq that was known to be committed before it began
	reads        []observed
	writes       map[string]string // "" for a delete
}

// observed is one read: of a key, of a range, or of the number of records.
type observed struct {
	from, to string            // bounds of a range; for a key, to equals from
	result   string            // the values read; for a range with their keys
	own      map[string]string // what the transaction had written before the read
	length   int64             // the number of records, or -1 for other reads
}

const (
	sharedKeys = 60 // written by all transactions except blind ones
	blindKeys  = 10 // written by blind puts only, never deleted
)

// historian runs transactions and collects their pasts.
type historian struct {
	e     *Engine
	acked atomic.Uint64
	ids   atomic.Int64

	mu    sync.Mutex
	pasts []*past
}

func (h *historian) keep(p *past) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pasts = append(h.pasts, p)
}

func sharedKey(rng *rand.Rand) string {
	if rng.IntN(3) == 0 {
		return fmt.Sprintf("key-%03d", rng.IntN(5)) // one of five keys that are written often
	}
	return fmt.Sprintf("key-%03d", rng.IntN(sharedKeys))
}

func blindKey(rng *rand.Rand) string { return fmt.Sprintf("zblind-%03d", rng.IntN(blindKeys)) }

// run begins, fills and ends one random transaction.
func (h *historian) run(t *testing.T, rng *rand.Rand) {
	p := &past{id: int(h.ids.Add(1)), acked: h.acked.Load(), writes: map[string]string{}}
	kind := rng.IntN(10)
	o := TxOptions{ReadOnly: kind < 2, Serializable: kind >= 7}
	p.blind, p.serializable = kind == 2, o.Serializable
	tx, err := h.e.Begin(o)
	if err != nil {
		t.Error(err)
		return
	}
	p.snapshot = tx.Snapshot()
	for range 1 + rng.IntN(6) {
		h.act(t, tx, p, o, rng)
	}
	if o.ReadOnly || rng.IntN(10) == 0 {
		err = tx.Rollback()
	} else {
		err = tx.Commit()
		switch {
		case err == nil && tx.pushed != nil:
			p.seq = tx.pushed.Value.seq.Load()
			for old := h.acked.Load(); old < p.seq && !h.acked.CompareAndSwap(old, p.seq); old = h.acked.Load() {
			}
		case errors.Is(err, ErrConflict) && !p.blind:
			err = nil
		}
	}
	if err != nil {
		t.Errorf("transaction %d: %v", p.id, err)
	}
	h.keep(p)
}

func (h *historian) act(t *testing.T, tx *Tx, p *past, o TxOptions, rng *rand.Rand) {
	write := func(key, value string) {
		var err error
		if value == "" {
			err = tx.Delete([]byte(key))
		} else {
			err = tx.Put([]byte(key), []byte(value))
		}
		if err != nil {
			t.Error(err)
		}
		p.writes[key] = value
	}
	value := func() string {
		return fmt.Sprintf("%d.%d", p.id, len(p.reads)) + strings.Repeat("x", rng.IntN(200)) + strings.Repeat("y", 4000*(rng.IntN(40)/39))
	}
	switch action := rng.IntN(12); {
	case p.blind:
		write(blindKey(rng), value())
	case action < 4 && !o.ReadOnly:
		key := sharedKey(rng)
		if len(p.reads) == 0 {
			h.readKey(t, tx, p, key) // a transaction that has read something is not blind
		}
		write(key, value())
	case action == 4 && !o.ReadOnly:
		key := sharedKey(rng)
		h.readKey(t, tx, p, key)
		write(key, "")
	case action < 8:
		h.readKey(t, tx, p, sharedKey(rng))
	case action == 8:
		h.readKey(t, tx, p, blindKey(rng))
	case action == 9:
		n, err := tx.Len()
		if err != nil {
			t.Error(err)
		}
		p.reads = append(p.reads, observed{length: n, own: copyOf(p.writes)})
	default:
		h.readRange(t, tx, p, rng)
	}
}

func copyOf(m map[string]string) map[string]string {
	c := map[string]string{}
	for k, v := range m {
		c[k] = v
	}
	return c
}

func (h *historian) readKey(t *testing.T, tx *Tx, p *past, key string) {
	v, _, err := tx.Get([]byte(key))
	if err != nil {
		t.Error(err)
	}
	p.reads = append(p.reads, observed{from: key, to: key, result: string(v), own: copyOf(p.writes), length: -1})
}

// readRange reads consecutive records in one direction and notes the range that they cover.
func (h *historian) readRange(t *testing.T, tx *Tx, p *past, rng *rand.Rand) {
	from, steps, forward := sharedKey(rng), rng.IntN(8), rng.IntN(2) == 0
	c := tx.Cursor()
	var found []string
	r := observed{from: from, to: from + "\x01", own: copyOf(p.writes), length: -1}
	for ok := c.Seek([]byte(from)); ; steps-- {
		if !ok {
			if forward || found == nil { // the cursor is past the end, or there is nothing to seek
				r.to = "\xff"
			} else {
				r.from = ""
			}
			break
		}
		v, err := c.Value()
		if err != nil {
			t.Error(err)
		}
		key := string(c.Key())
		found = append(found, key+"="+string(v))
		r.from, r.to = min(r.from, key), max(r.to, key+"\x01")
		if steps == 0 {
			break
		}
		if forward {
			ok = c.Next()
		} else {
			ok = c.Prev()
		}
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	slices.Sort(found)
	r.result = strings.Join(found, ",")
	p.reads = append(p.reads, r)
}

var (
	historyRuns = flag.Int("history.runs", 1, "histories of each durability")
	historySize = flag.Int("history.transactions", 2000, "transactions of a history")
	historyFrom = flag.Uint64("history.from", 1, "seed of the first history")
)

// TestHistory runs the test of isolation for each durability.
func TestHistory(t *testing.T) {
	for run := range *historyRuns {
		for _, d := range []Durability{Durable, WriteThrough, Buffered} {
			t.Run(fmt.Sprintf("%d, durability %d", *historyFrom+uint64(run), d), func(t *testing.T) { testHistory(t, d, *historyFrom+uint64(run)) })
		}
	}
}

func testHistory(t *testing.T, d Durability, seed uint64) {
	opts := tiny(d)
	opts.MemoryLimit = 256 << 10
	if (seed+uint64(d))%2 == 1 {
		opts.BackgroundOps, opts.DeferOps = 2, 1
	}
	h := &historian{e: newEngine(t, opts)}
	goroutines, rounds := 8, *historySize/8
	if testing.Short() {
		rounds /= 4
	}
	stop := make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() { h.disturb(t, stop) })
	helpers.Go(func() { h.hold(t, stop) })
	for again := range 5 {
		together(goroutines, func(g int) {
			rng := rand.New(rand.NewPCG(uint64(g), seed<<16|uint64(d)<<8|uint64(again)))
			for range rounds {
				h.run(t, rng)
			}
		})
		s, err := h.e.Stats()
		require.NoError(t, err)
		if s.Checkpoints > 0 && s.Pages.Flushes > 0 && s.Conflicts > 0 { // on a busy machine the other goroutines may not have run yet
			break
		}
	}
	close(stop)
	helpers.Wait()
	replay(t, h.pasts)
	s, err := h.e.Stats()
	require.NoError(t, err)
	require.Positive(t, s.Checkpoints)
	require.Positive(t, s.Pages.Flushes)
	if !testing.Short() { // a short run on a busy machine may see none
		require.Positive(t, s.Conflicts)
	}
}

// disturb flushes, folds and makes checkpoints all the time.
func (h *historian) disturb(t *testing.T, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if err := h.e.Checkpoint(); err != nil {
			t.Error(err)
		}
	}
}

// hold reads again and again in transactions that stay open for long.
func (h *historian) hold(t *testing.T, stop chan struct{}) {
	rng := rand.New(rand.NewPCG(99, 99))
	for {
		p := &past{id: int(h.ids.Add(1)), acked: h.acked.Load(), writes: map[string]string{}}
		tx, err := h.e.Begin(TxOptions{ReadOnly: true})
		if err != nil {
			t.Error(err)
			return
		}
		p.snapshot = tx.Snapshot()
		for range 400 {
			if tx.Expired() != nil {
				break
			}
			h.act(t, tx, p, TxOptions{ReadOnly: true}, rng)
		}
		tx.Rollback()
		h.keep(p)
		select {
		case <-stop:
			return
		default:
		}
	}
}

// A timeline has the writes of each key in order of their Seqs.
type timeline map[string][]written

type written struct {
	seq    uint64
	values []string // more than one only if several blind puts are in one batch; the first is the one that was seen
	seen   bool
}

// at returns the value that a key has at a Seq; nil if the key never had one.
func (tl timeline) at(key string, seq uint64) *written {
	w := tl[key]
	i, found := slices.BinarySearchFunc(w, seq, func(w written, s uint64) int { return cmp.Compare(w.seq, s) })
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	return &w[i]
}

func replay(t *testing.T, pasts []*past) {
	slices.SortFunc(pasts, func(a, b *past) int { return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.id, b.id)) })
	tl := timeline{}
	for _, p := range pasts {
		if p.seq == 0 {
			continue
		}
		for key, value := range p.writes {
			w := tl[key]
			if n := len(w); n > 0 && w[n-1].seq == p.seq {
				if !p.blind {
					t.Fatalf("transaction %d: %s was written twice in batch %d", p.id, key, p.seq)
				}
				w[n-1].values = append(w[n-1].values, value)
				continue
			}
			if n := len(w); n > 0 && !p.blind && w[n-1].seq > p.snapshot {
				t.Fatalf("transaction %d at %d, committed at %d: %s was committed at %d", p.id, p.snapshot, p.seq, key, w[n-1].seq)
			}
			tl[key] = append(w, written{seq: p.seq, values: []string{value}})
		}
	}
	for _, p := range pasts {
		if p.snapshot < p.acked {
			t.Fatalf("transaction %d: snapshot %d, but %d had been acknowledged", p.id, p.snapshot, p.acked)
		}
		for _, r := range p.reads {
			if err := tl.check(r, p.snapshot); err != nil {
				t.Fatalf("transaction %d at %d: %v", p.id, p.snapshot, err)
			}
			if p.serializable && p.seq != 0 {
				if err := tl.check(r, p.seq-1); err != nil {
					t.Fatalf("transaction %d at %d, serialized at %d: %v", p.id, p.snapshot, p.seq, err)
				}
			}
		}
	}
	checkSkew(t, pasts)
}

// check compares a read with the state at a Seq.
func (tl timeline) check(r observed, seq uint64) error {
	if r.length >= 0 {
		var n int64
		for key := range tl {
			if tl.value(key, seq, r.own, "") != "" {
				n++
			}
		}
		for key, v := range r.own {
			if _, known := tl[key]; !known && v != "" { // written by a transaction that did not commit
				n++
			}
		}
		if n != r.length {
			return fmt.Errorf("%d records instead of %d", r.length, n)
		}
		return nil
	}
	if r.from == r.to {
		if want := tl.value(r.from, seq, r.own, r.result); want != r.result {
			return fmt.Errorf("%s is %.20q instead of %.20q", r.from, r.result, want)
		}
		return nil
	}
	got := map[string]string{}
	for _, kv := range strings.Split(r.result, ",") {
		k, v, _ := strings.Cut(kv, "=")
		got[k] = v
	}
	var want []string
	for key := range keysOf(tl, r.own) {
		if key < r.from || key >= r.to {
			continue
		}
		if v := tl.value(key, seq, r.own, got[key]); v != "" {
			want = append(want, key+"="+v)
		}
	}
	slices.Sort(want)
	if w := strings.Join(want, ","); w != r.result {
		return fmt.Errorf("range %q to %q is %.200q instead of %.200q", r.from, r.to, r.result, w)
	}
	return nil
}

func keysOf(tl timeline, own map[string]string) map[string]bool {
	keys := map[string]bool{}
	for k := range tl {
		keys[k] = true
	}
	for k := range own {
		keys[k] = true
	}
	return keys
}

// value returns the value of a key at a Seq, with a transaction's own writes applied. If several blind puts are in one
// batch, the first transaction that reads the key decides which of them came last.
func (tl timeline) value(key string, seq uint64, own map[string]string, seen string) string {
	if v, ok := own[key]; ok {
		return v
	}
	w := tl.at(key, seq)
	if w == nil {
		return ""
	}
	if i := slices.Index(w.values, seen); i > 0 && !w.seen {
		w.values[0], w.values[i] = w.values[i], w.values[0]
		w.seen = true
	} else if i == 0 {
		w.seen = true
	}
	return w.values[0]
}

// checkSkew looks for two serializable transactions of one batch, each of which read a key that the other wrote: no
// order of the two can explain both reads.
func checkSkew(t *testing.T, pasts []*past) {
	reads := func(a, b *past) bool { // a read a key that b wrote
		for _, r := range a.reads {
			for key := range b.writes {
				if _, mine := r.own[key]; !mine && r.length < 0 && r.from <= key && (key < r.to || key == r.from) {
					return true
				}
			}
		}
		return false
	}
	for i, a := range pasts {
		for _, b := range pasts[i+1:] {
			if b.seq != a.seq {
				break
			}
			if a.seq != 0 && a.serializable && b.serializable && reads(a, b) && reads(b, a) {
				t.Fatalf("transactions %d and %d of batch %d have each read what the other has written", a.id, b.id, a.seq)
			}
		}
	}
}
