package hydra

import (
	"bytes"
	"sync"
	"sync/atomic"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
)

// Where the fabric lets any goroutine Read (fabric.Reader), a GET whose pointer counts does not come to the engine: its caller Reads, and goroutines do so
// at once. All else goes by the engine, also what has to be asked for before such a GET can be made.
//
// Invariants:
//
//  1. What a Read relies on is what rules 1 to 5 of the package say, whoever makes it: counts is asked before, accept after it.
//  2. A sight and a pointer do not change. The engine shows another sight when tenure, reign or connection do, and a suspension is counted
//     by the look at the clock that finds it. So a goroutine that goes by an older sight goes by a tenure that was granted.
//  3. The pointer is loaded before the sight. A pointer that was learnt behind a suspension is in the cache behind the sights that the suspension
//     has ended, so it is never used with one of these.
//  4. A Reader outlives its connection's end, with errors: the engine then finds out what has happened.

// A sight is what any goroutine may go by when it Reads a shard's memory.
type sight struct {
	reader fabric.Reader // nil: by the engine only
	term   uint64
	tenure int64
}

// show has any goroutine go by the shard's present connection, reign and tenure.
func (s *shard) show() {
	if s.sided == nil || s.tenure == 0 {
		s.sight.Store(nil)
		return
	}
	s.sight.Store(&sight{reader: s.sided.Reader(), term: s.term, tenure: s.tenure})
}

// readNow is a GET by the caller itself. It reports whether it was made, and when. Any goroutine.
func (e *engine) readNow(o *op) (now int64, made bool) {
	if e.noPointer {
		return 0, false
	}
	hash := circle.Hash(e.seed.Load(), o.key)
	p := e.cache.find(hash, o.key)
	if p == nil {
		return 0, false
	}
	v := p.shard.sight.Load()
	if v == nil || v.reader == nil {
		return 0, false
	}
	now = e.clock.now()
	if p.wall != e.clock.jumps.Load() || !e.counts(p, v, now) {
		return now, false
	}
	land := o.landing(int(p.at.Length))
	if v.reader.ReadNow(land, p.extent.key, p.at.Offset) != nil {
		return now, false
	}
	p.note(now)
	if now = e.clock.now(); !e.accept(&o.call, p, land, now) {
		e.refuse(p)
		return now, false
	}
	return now, true
}

// landing returns n bytes for a Read to land in.
func (o *op) landing(n int) []byte {
	if cap(o.land) < n {
		o.land = make([]byte, max(2*n, 512))
	}
	return o.land[:n]
}

// counts reports whether a pointer may be Read by at a time (rule 1). Any goroutine.
func (e *engine) counts(p *pointer, v *sight, now int64) bool {
	if now >= p.end {
		e.cache.drop(p)
		return false
	}
	if v == nil || p.at.Term != v.term || now >= v.tenure {
		if v != nil && p.at.Term < v.term {
			e.cache.drop(p)
		}
		p.shard.use() // so that a tenure is asked for
		return false
	}
	return p.extent.known.Load()
}

// accept takes what a Read has brought into the call, if it is proved (rules 2, 3 and 5). Now is a time behind the completion. Any goroutine.
func (e *engine) accept(c *call, p *pointer, b []byte, now int64) bool {
	if now >= p.end || p.wall != e.clock.jumps.Load() {
		return false
	}
	it, err := guard.Verify(b, c.key)
	if err != nil {
		return false
	}
	e.reads.accepted(p.hash)
	c.version, c.expires, c.itemFlags = it.Version, it.Expiry, protocol.ItemFlags(it.Flags>>flagShift)
	c.out = append(c.dst, it.Value...)
	return true
}

// refuse forgets a pointer whose Read was not accepted. Any goroutine.
func (e *engine) refuse(p *pointer) {
	e.reads.refused.Add(1)
	e.cache.drop(p)
}

// note notes that a pointer is used at a time: one that is used twice and past half of its lease is renewed. Any goroutine.
func (p *pointer) note(now int64) {
	p.shard.use()
	uses := p.uses.Load()
	if uses < renewUses { // more need not be counted
		uses = p.uses.Add(1)
	}
	if uses >= renewUses && now-p.begin > (p.end-p.begin)/2 && !p.renewed.Load() && p.renewed.CompareAndSwap(false, true) {
		p.shard.renew.add(p)
	}
}

// renewUses is how often a pointer has to be used for its lease to be renewed.
const renewUses = 2

// use notes that the shard is Read, or would be if there were a tenure. All goroutines look at the word, so it is written only when it changes.
func (s *shard) use() {
	if !s.used.Load() {
		s.used.Store(true)
	}
}

// find returns the key's pointer, nil if there is none.
func (c *pointers) find(hash uint64, key []byte) *pointer {
	p := c.get(hash)
	if p == nil || !bytes.Equal(p.key, key) {
		return nil
	}
	return p
}

// renewals are the pointers whose leases are to be asked for anew. Any goroutine.
type renewals struct {
	mu   sync.Mutex // no other lock is taken while it is held
	list []*pointer
	n    atomic.Int32 // of list
}

func (r *renewals) any() bool { return r.n.Load() > 0 }

func (r *renewals) add(p ...*pointer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, p...)
	r.n.Store(int32(len(r.list)))
}

// take returns the oldest, most at most.
func (r *renewals) take(most int) []*pointer {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.list[:min(most, len(r.list))]
	r.list = append([]*pointer(nil), r.list[len(taken):]...)
	r.n.Store(int32(len(r.list)))
	return taken
}

func (r *renewals) clear() { r.take(1 << 30) }

// tallies count Reads. Those that were accepted are in several words, so that goroutines on several processors do not all write the same one.
type tallies struct {
	refused atomic.Uint64 // that proved nothing, or came too late
	good    [8]struct {
		n atomic.Uint64
		_ [56]byte // a cache line each
	}
}

func (t *tallies) accepted(hash uint64) { t.good[hash>>61].n.Add(1) }

// oneSided returns how many GETs were answered by an accepted Read.
func (t *tallies) oneSided() (n uint64) {
	for i := range t.good {
		n += t.good[i].n.Load()
	}
	return n
}
