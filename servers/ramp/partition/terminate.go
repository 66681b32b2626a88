package partition

import (
	"fmt"
	"slices"

	"flashdbm/servers/guard"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/store"
)

// A Note is a message between partitions about a transaction.
type Note struct {
	From   uint32
	TS     Timestamp
	Client uint64
	Life   uint64 // of the table
	State  NoteState
	// Synced: the PREPARE survives the end of the process; Settled: the COMMIT does.
	Synced, Settled bool
	Question        bool // an answer is wanted
	Hashes          []uint64
}

// NoteState is the state of the transaction at the sender of a Note.
type NoteState uint8

// The states.
const (
	NotePrepared NoteState = 1 + iota
	NoteCommitted
	NoteRefused
)

// pursue asks the other partitions of a transaction that its client has not finished, or that not all of them may
// have.
func (p *Partition) pursue(t *txn) {
	if t.state == committed {
		p.settle(t)
		if p.finish(t); p.txns[t.ts] == nil {
			return
		}
	}
	t.asked = true
	p.asks.add(p.now+askAfter, t.ts)
	if t.state == prepared && p.outcome(t) {
		return
	}
	if t.prepared <= p.tellable() {
		p.question(t)
	} else if !t.awaits { // only durable knowledge may be reported
		t.awaits = true
		p.after(t.prepared, func() {
			if t.awaits = false; p.txns[t.ts] == t && t.state == prepared && !p.outcome(t) {
				p.question(t)
			}
		})
	}
}

// question asks the other partitions about a transaction.
func (p *Partition) question(t *txn) {
	for i := range t.sharers {
		if s := &t.sharers[i]; !s.settled || t.state == prepared {
			n := p.note(t)
			n.Question = true
			p.o.Tell(s.partition, n)
		}
	}
}

// note returns this partition's knowledge of a transaction.
func (p *Partition) note(t *txn) Note {
	n := Note{From: p.o.Partition, TS: t.ts, Client: t.client, Life: p.life(), Hashes: t.hashes}
	switch t.state {
	case prepared:
		n.State = NotePrepared
	case committed:
		n.State = NoteCommitted
	case refused:
		n.State = NoteRefused
	}
	n.Synced = t.prepared <= p.durable()
	n.Settled = t.state == committed && t.settled != 0 && t.settled <= p.durable()
	return n
}

// Hear handles a note of another partition. As with all methods, the goroutine that serves the partition calls it.
func (p *Partition) Hear(n Note) {
	if p.failed != nil || n.Life != p.life() || p.seat != nil && p.seat.reign.Closed() {
		return // entries of another life of the table are lost
	}
	t := p.txns[n.TS]
	switch {
	case t == nil && (!n.Question || n.State != NotePrepared && !p.mayTell()):
		return
	case t == nil && n.State == NotePrepared: // invariant 5: never prepared here, so it never will be
		t = p.refuse(n.TS, n.Client, n.Hashes)
	case t == nil: // committed, and forgotten here because all partitions have it
		p.o.Tell(n.From, Note{From: p.o.Partition, TS: n.TS, Client: n.Client, Life: p.life(), State: NoteCommitted, Synced: true, Settled: true})
		return
	case t.client != n.Client: // another transaction has the timestamp here. The timestamp has to stay refused after that transaction is forgotten
		if n.Question {
			if p.floor < n.TS {
				p.raise(n.TS)
			}
			p.after(p.seq, func() {
				p.o.Tell(n.From, Note{From: p.o.Partition, TS: n.TS, Client: n.Client, Life: p.life(), State: NoteRefused, Synced: true})
			})
		}
		return
	}
	p.learn(t, &n)
	if n.Question && p.txns[n.TS] == t {
		p.answer(t, n.From)
	}
}

// answer reports a transaction to another partition, once answers may depend on its entry.
func (p *Partition) answer(t *txn, to uint32) {
	seq := t.prepared
	if t.state == refused {
		seq = t.settled
	}
	p.after(seq, func() { p.o.Tell(to, p.note(t)) })
}

// learn records what another partition reports.
func (p *Partition) learn(t *txn, n *Note) {
	i := slices.IndexFunc(t.sharers, func(s sharer) bool { return s.partition == n.From })
	if i < 0 || t.state == refused {
		return
	}
	s := &t.sharers[i]
	if n.State != NoteRefused { // it was reported once it was durable
		s.prepared = true
	}
	s.preparedS = s.preparedS || n.Synced
	s.settled = s.settled || n.Settled
	switch {
	case t.state == committed:
		p.settle(t)
		p.finish(t)
	case n.State == NoteCommitted:
		p.counts.Terminated++
		p.commit(t)
	case n.State == NoteRefused:
		p.counts.Terminated++
		p.abort(t)
	case t.asked:
		p.outcome(t)
	}
}

// outcome commits a transaction that all partitions have prepared.
func (p *Partition) outcome(t *txn) bool {
	if t.prepared > p.tellable() {
		return false
	}
	for i := range t.sharers {
		if !t.sharers[i].prepared {
			return false
		}
	}
	p.counts.Terminated++
	p.commit(t)
	return true
}

// finish forgets a committed transaction that all partitions have (invariant 6).
func (p *Partition) finish(t *txn) {
	if t.settled == 0 || t.settled > p.durable() {
		return
	}
	for i := range t.sharers {
		if !t.sharers[i].settled {
			return
		}
	}
	delete(p.txns, t.ts)
	if p.o.Store != nil {
		p.entry(store.DropTransaction(uint64(t.ts)))
	}
}

// inherit continues the unfinished work of the last life.
func (p *Partition) inherit(in *store.Inherited) error {
	p.floor = Timestamp(in.Floor)
	p.inFile(p.floor)
	for i := range in.Newest {
		v := &in.Newest[i]
		at, err := p.roomBeyond(guard.Size(len(v.Key), len(v.Value)))
		if err != nil {
			return fmt.Errorf("partition: memory for what was not finished when the last life ended: %w", err)
		}
		p.loadAt(v, at)
	}
	for i := range in.Transactions {
		r := &in.Transactions[i]
		t := &txn{ts: Timestamp(r.TS), client: r.Client, hashes: r.Hashes, since: p.now, prepared: p.seq, inherited: true}
		p.share(t)
		p.inFile(t.ts)
		p.txns[t.ts] = t
		switch r.State {
		case store.Committed:
			t.state, t.settled = committed, p.seq
		case store.Refused:
			t.state, t.settled = refused, p.seq
			p.refused.add(p.now+refusalTime, t.ts)
			continue
		case store.Prepared:
			t.state = prepared
			for j := range in.Versions {
				v := &in.Versions[j]
				if v.TS != r.TS {
					continue
				}
				at, err := p.roomBeyond(guard.Size(len(v.Key), len(v.Value)))
				if err != nil {
					return fmt.Errorf("partition: memory for what was not finished when the last life ended: %w", err)
				}
				p.place(t, p.versionsOf(v.Hash, v.Key), v, at)
			}
		}
		p.asks.add(p.now, t.ts)
	}
	if p.o.Store != nil && !p.complete {
		p.horizon = protocol.MakeTimestamp(p.time+clockWindow, 0, 0)
	}
	return nil
}
