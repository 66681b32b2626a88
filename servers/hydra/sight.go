package hydra

import (
	"sync"
	"sync/atomic"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
)

// If the fabric lets any goroutine Read (fabric.Reader), a GET with a valid pointer does not go through the engine:
// its caller Reads, and several goroutines may do so at the same time. All other calls go through the engine, and so
// does everything that has to be requested before such a GET is possible.
//
// Invariants:
//
//  1. Rules 1 to 5 of the package hold for the Reads of all goroutines. The engine calls counts before the Read, and
//     accept afterwards. Any other goroutine calls both afterwards, with the same time.
//  2. A sight and a pointer are immutable. The engine publishes another sight when tenure, reign or connection
//     change, and a suspension is counted by the reading of the clock that detects it. So even an older sight has
//     a tenure that was granted.
//  3. The pointer is loaded before the sight. A suspension ends sights, and these are withdrawn before a pointer
//     that was learnt after the suspension is put into the cache. So such a pointer is never used with one of
//     these sights.
//  4. A Reader outlives its connection's end, and returns errors: the engine then finds out what has happened.

// A sight is what a goroutine relies on when it Reads a shard's memory.
type sight struct {
	reader fabric.Reader // nil: only the engine can Read
	term   uint64
	tenure int64
}

// show publishes the shard's present connection, reign and tenure for all goroutines.
func (s *shard) show() {
	if s.sided == nil || s.tenure == 0 {
		s.sight.Store(nil)
		return
	}
	s.sight.Store(&sight{reader: s.sided.Reader(), term: s.term, tenure: s.tenure})
}

// readNow carries out a GET in the caller's goroutine. It reports whether it did, and the time. Any goroutine may
// call it. It reads the clock once, after the copy: a tenure and a lease that last then lasted before, and a suspension
// before the copy is counted by then.
func (e *engine) readNow(o *op) (now int64, made bool) {
	if e.noPointer {
		return 0, false
	}
	p := e.cache.get(circle.Hash(e.seed.Load(), o.key))
	if p == nil {
		return 0, false
	}
	v := p.shard.sight.Load()
	if v == nil || v.reader == nil || !p.extent.known.Load() {
		return 0, false
	}
	land := o.landing(int(p.length))
	if v.reader.ReadNow(land, p.extent.key, p.offset) != nil {
		return 0, false
	}
	now = e.clock.now()
	if !e.counts(p, v, now) {
		return now, false
	}
	p.note(now)
	if !e.accept(&o.call, p, land, now) {
		e.refuse(p)
		return now, false
	}
	return now, true
}

// landing returns n bytes for a Read.
func (o *op) landing(n int) []byte {
	if cap(o.land) < n {
		o.land = make([]byte, max(2*n, 512))
	}
	return o.land[:n]
}

// counts reports whether a Read by the pointer may begin at time now or earlier (rule 1). Any goroutine may call it.
func (e *engine) counts(p *pointer, v *sight, now int64) bool {
	if now >= p.end {
		e.cache.drop(p)
		return false
	}
	if v == nil || p.extent.term != v.term || now >= v.tenure {
		if v != nil && p.extent.term < v.term {
			e.cache.drop(p)
		}
		p.shard.use() // so that a tenure is asked for
		return false
	}
	return p.extent.known.Load()
}

// accept puts the copy b of a Read into the call, if it is valid (rules 2, 3 and 5). now is a time after the
// completion. Any goroutine may call it.
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

// refuse drops a pointer whose Read was not accepted. Any goroutine may call it.
func (e *engine) refuse(p *pointer) {
	e.reads.refused.Add(1)
	e.cache.drop(p)
}

// note counts a use of the pointer: a pointer that has been used twice and is past half of its lease is renewed. Any
// goroutine may call it.
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

// renewUses is the number of uses after which a pointer's lease is renewed.
const renewUses = 2

// use records that the shard is Read, or would be if there were a tenure. All goroutines read the word, so it is
// written only when it changes.
func (s *shard) use() {
	if !s.used.Load() {
		s.used.Store(true)
	}
}

// renewals are the pointers whose leases should be renewed. Any goroutine may use them.
type renewals struct {
	mu   sync.Mutex // no other lock is taken while it is held
	list []*pointer
	n    atomic.Int32 // length of list
}

func (r *renewals) any() bool { return r.n.Load() > 0 }

func (r *renewals) add(p ...*pointer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, p...)
	r.n.Store(int32(len(r.list)))
}

// take removes and returns the oldest pointers, at most most of them.
func (r *renewals) take(most int) []*pointer {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.list[:min(most, len(r.list))]
	r.list = append([]*pointer(nil), r.list[len(taken):]...)
	r.n.Store(int32(len(r.list)))
	return taken
}

func (r *renewals) clear() { r.take(1 << 30) }

// tallies count Reads. Accepted Reads are counted in several words, so that goroutines on several processors do not
// all write the same one.
type tallies struct {
	refused atomic.Uint64 // Reads whose copy was invalid, or too late
	good    [8]struct {
		n atomic.Uint64
		_ [56]byte // each on a cache line of its own
	}
}

func (t *tallies) accepted(hash uint64) { t.good[hash>>61].n.Add(1) }

// oneSided returns the number of GETs answered by an accepted Read.
func (t *tallies) oneSided() (n uint64) {
	for i := range t.good {
		n += t.good[i].n.Load()
	}
	return n
}
