package sim

import (
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

// A unit is what moves at once: a word, the part of a word at an end of the operation, or a few words of a very large
// operation.
type unit struct{ at, n uint64 } // offset in the operation and length, in bytes

// maxUnits bounds the events and the memory of an operation. Protocols have to tolerate units of one word; for 4 MiB,
// units of 4 KiB in random order are enough.
const maxUnits = 1024

// cut divides an operation into units, in random order. Their bounds are those of words in the peer's memory, whose
// regions begin at a page.
func (o *op) cut() {
	size := uint64(words.Size)
	for o.w.LLen/size > maxUnits {
		size *= 2
	}
	for at := uint64(0); at < o.w.LLen; {
		n := min(size-(o.w.ROff+at)%size, o.w.LLen-at)
		o.units = append(o.units, unit{at, n})
		at += n
	}
	o.e.w.rand.Shuffle(len(o.units), func(i, j int) { o.units[i], o.units[j] = o.units[j], o.units[i] })
}

// move moves some of the units, and schedules itself for the others.
func (o *op) move() {
	e, w := o.e, o.e.w
	me, peer := e.d.n, e.other.d.n
	switch {
	case e.err != nil || e.gone:
		o.strand()
		return
	case o.freezes && (me.state == stopped || me.state == suspended):
		me.whenRunning(func() { w.After(w.Delay(), o.move) })
		return
	case !w.Reaches(me, peer) || (o.w.Op == fabric.Read && !w.Reaches(peer, me)):
		w.After(1+w.upTo(retry), o.move)
		return
	case w.one(w.faults.LoseOne):
		e.end(fabric.ErrTimeout, fabric.ErrTimeout)
		o.strand()
		return
	}
	if o.w.LLen == 0 {
		o.arrived()
		return
	}
	local, mine, err := e.d.regions.Own(o.w.Local, o.w.LOff, o.w.LLen)
	if err != nil {
		o.fail() // closed since the operation was posted
		return
	}
	defer local.Release()
	if o.w.Inlined != nil {
		mine = o.w.Inlined
	}
	want := fabric.RemoteRead
	if o.w.Op == fabric.Write {
		want = fabric.RemoteWrite
	}
	r, theirs, err := e.other.d.regions.Reach(o.w.Remote, o.w.ROff, o.w.LLen, want)
	if err != nil {
		o.fail()
		return
	}
	some := 1 + w.rand.IntN(len(o.units))
	for _, u := range o.units[:some] {
		if o.w.Op == fabric.Read {
			words.Read(mine[u.at:u.at+u.n], theirs[u.at:u.at+u.n])
		} else {
			words.Write(theirs[u.at:u.at+u.n], mine[u.at:u.at+u.n])
		}
	}
	o.units = o.units[some:]
	o.region = r
	if r.Leave() != nil {
		o.fail()
		return
	}
	if len(o.units) > 0 {
		w.After(w.Delay(), o.move)
		return
	}
	// The owner may fence the region until now: an operation checks the fence last, after its last word.
	w.After(w.upTo(w.faults.Delay), func() {
		if r, _, err := e.other.d.regions.Reach(o.w.Remote, o.w.ROff, o.w.LLen, want); err != nil {
			o.err = fabric.ErrAccess
		} else {
			r.Leave()
		}
		o.arrived()
	})
}

// fail makes the operation fail with ErrAccess.
func (o *op) fail() {
	o.err = fabric.ErrAccess
	o.strand()
	o.moved, o.bell = true, false
	o.e.w.After(o.e.w.Delay(), o.ack)
}

// strand decides what happens to the words of a Write that has failed: in half of the cases some words still arrive,
// up to fabric.Timeout later, fenced or not. Words of a stopped writer do so, and words that an old agent of tcp
// still has.
func (o *op) strand() {
	if o.region == nil || o.w.Op != fabric.Write || len(o.units) == 0 || o.e.w.one(2) {
		return
	}
	w, r := o.e.w, o.region
	local, mine, err := o.e.d.regions.Own(o.w.Local, o.w.LOff, o.w.LLen)
	if err != nil {
		return
	}
	if o.w.Inlined != nil {
		mine = o.w.Inlined
	}
	late := append([]byte(nil), mine...)
	local.Release()
	units, off, n := o.units, o.w.ROff, o.w.LLen
	for _, u := range units[:w.rand.IntN(len(units)+1)] {
		w.After(w.upTo(fabric.Timeout), func() {
			if theirs := r.Late(off, n); theirs != nil {
				words.Write(theirs[u.at:u.at+u.n], late[u.at:u.at+u.n])
				r.Release()
			}
		})
	}
	o.units = nil
}
