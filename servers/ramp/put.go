package ramp

import (
	"fmt"
	"slices"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/ramp/protocol"
)

// A Pair is a key and its new value.
type Pair struct {
	Key    []byte
	Value  []byte
	Remove bool // remove the key
}

// A put is a PutAll: PREPARE at all partitions, then COMMIT (PUT+).
type put struct {
	underWay
	parts    []putPart
	hashes   []uint64
	sorted   []hashed // the pairs, while they are sorted
	ts       Timestamp
	left     int   // number of answers under way
	outcome  phase // the present phase
	newest   Timestamp
	err      error
	again    bool // a PREPARE that was refused may have arrived before
	taken    bool // another transaction may have the timestamp
	refusals int
	done     func(ts Timestamp, err error)
	locks    *locking // of two-phase locking, else nil. With locks, COMMIT is always a separate message
}

// A putPart is the part of one partition.
type putPart struct {
	link *link
	life uint64 // of the partition, when the transaction began
	body protocol.Prepare
}

// A hashed pair is the place of a pair among those of the caller.
type hashed struct {
	hash uint64
	at   int
}

type phase uint8

const (
	preparing phase = iota
	committing
)

// startPut begins a PutAll. The pairs must not change until done was called.
func (e *engine) startPut(pairs []Pair, deadline int64, done func(Timestamp, error)) *put {
	t := &put{done: done}
	t.deadline = deadline
	if err := t.split(e, pairs); err != nil {
		t.ended = true
		done(0, err)
		return t
	}
	e.run(t)
	t.begin(e)
	return t
}

// split sorts the pairs by partition and hash. Of pairs with the same key the last one wins.
func (t *put) split(e *engine, pairs []Pair) error {
	if len(pairs) == 0 || len(pairs) > protocol.MaxKeys {
		return fmt.Errorf("%w: %d keys; 1 to %d are possible", ErrTooLarge, len(pairs), protocol.MaxKeys)
	}
	list := slices.Grow(t.sorted[:0], len(pairs))[:len(pairs)]
	t.sorted = list
	for i := range pairs {
		p := &pairs[i]
		if len(p.Key) > protocol.MaxKey || len(p.Value) > protocol.MaxValue {
			return fmt.Errorf("%w: a key of %d bytes with a value of %d; %d and %d are possible", ErrTooLarge, len(p.Key), len(p.Value), protocol.MaxKey, protocol.MaxValue)
		}
		list[i] = hashed{circle.Hash(e.seed, p.Key), i}
	}
	slices.SortFunc(list, func(a, b hashed) int {
		switch {
		case a.hash < b.hash:
			return -1
		case a.hash > b.hash:
			return 1
		}
		return a.at - b.at
	})
	t.hashes = slices.Grow(t.hashes[:0], len(list))
	t.parts = slices.Grow(t.parts[:0], min(len(list), len(e.links)))
	for i, h := range list {
		if i+1 < len(list) && list[i+1].hash == h.hash {
			if string(pairs[h.at].Key) != string(pairs[list[i+1].at].Key) {
				return fmt.Errorf("%w: two of the keys have the same hash", ErrTooLarge)
			}
			continue // a later pair replaces this one
		}
		p := &pairs[h.at]
		part := protocol.Part{Removed: p.Remove, Key: p.Key, Value: p.Value}
		if p.Remove {
			part.Value = nil
		}
		t.hashes = append(t.hashes, h.hash)
		l := e.owner(h.hash)
		at := slices.IndexFunc(t.parts, func(x putPart) bool { return x.link == l })
		if at < 0 {
			at = len(t.parts)
			t.parts = t.parts[:at+1]
			room := t.parts[at].body.Parts
			t.parts[at] = putPart{link: l}
			t.parts[at].body.Parts = slices.Grow(room[:0], min(len(list), 1+2*len(list)/len(e.links)))
		}
		b := &t.parts[at].body
		b.Parts = append(b.Parts, part)
	}
	for i := range t.parts {
		b := &t.parts[i].body
		b.Client, b.Kind, b.Hashes = e.client, e.alg.kind(), t.hashes
		if b.Size() > protocol.MaxBody {
			return fmt.Errorf("%w: %d bytes for one partition; %d are possible", ErrTooLarge, b.Size(), protocol.MaxBody)
		}
	}
	return nil
}

// begin sends PREPARE with a new timestamp.
func (t *put) begin(e *engine) {
	t.ts = e.clock.Next(e.wall)
	t.outcome, t.left, t.newest, t.err, t.again, t.taken = preparing, len(t.parts), 0, nil, false, false
	flags := protocol.Flags(0)
	if len(t.parts) == 1 && t.locks == nil {
		flags = protocol.FlagOnePhase
	}
	for i := range t.parts {
		p := &t.parts[i]
		p.body.TS, p.life = t.ts, p.link.life
		ts := t.ts
		body := p.body // with this timestamp, in case it is sent again
		c := &call{op: protocol.OpPrepare, flags: flags, size: body.Size(), append: body.AppendBody, of: &t.underWay,
			done: func(c *call, s protocol.Status, b []byte, err error) { t.prepared(e, ts, p.life, c, s, b, err) }}
		if t.locks != nil {
			c.once, c.over = true, t.locks.conn(p.link)
		}
		e.send(p.link, c)
	}
}

// prepared handles an answer to PREPARE.
func (t *put) prepared(e *engine, ts Timestamp, life uint64, c *call, s protocol.Status, body []byte, err error) {
	if t.ended || ts != t.ts {
		return
	}
	t.left--
	t.again = t.again || c.again && s != protocol.StatusOK
	var n protocol.Newest
	switch {
	case err != nil || s == protocol.StatusOK && c.life != life: // the locks are lost; or invariant 6
		t.err = ErrUnknownOutcome
	case s == protocol.StatusOK:
	case (s == protocol.StatusRefused || s == protocol.StatusClock) && n.Parse(body) == nil:
		t.newest, t.taken = max(t.newest, n.TS), t.taken || n.TS == ts
		if s == protocol.StatusClock {
			e.clock.Correct(e.wall, n.TS)
		}
		if t.err == nil {
			t.err = errRefused
		}
	default:
		t.err = failed(s)
	}
	if t.left > 0 {
		return
	}
	switch {
	case t.err == nil && len(t.parts) == 1 && t.locks == nil:
		t.end(e, nil)
	case t.err == nil:
		t.commit(e)
	case t.err == ErrUnknownOutcome:
		t.end(e, t.err)
	default:
		t.refused(e)
	}
}

const (
	// quickTries is how often a refused transaction is retried at once. A refusal has two causes: transactions that
	// write the same keys came first, which happens a few times at most; or timestamps are ahead of the partitions'
	// dates, which only waiting resolves.
	quickTries = 16
	// pauseTime is the pause before each further try.
	pauseTime = time.Millisecond
)

// A paused transaction is retried at a given time.
type paused struct {
	at    int64
	of    *underWay
	again func()
}

// retry retries a transaction: at once a few times, then with pauses.
func (e *engine) retry(of *underWay, tries int, again func()) {
	if tries > quickTries {
		e.paused = append(e.paused, paused{e.now + int64(pauseTime), of, again})
		return
	}
	again()
}

// resume retries the transactions whose pause has ended.
func (e *engine) resume() (worked bool) {
	for len(e.paused) > 0 && e.paused[0].at <= e.now {
		p := e.paused[0]
		e.paused = e.paused[1:]
		if !p.of.ended {
			p.again()
			worked = true
		}
	}
	return worked
}

var errRefused = fmt.Errorf("%w: refused", ErrUnavailable)

// commit sends COMMIT: all partitions have prepared the transaction.
func (t *put) commit(e *engine) {
	if e.beforeCommit != nil {
		e.beforeCommit(t.ts)
	}
	t.outcome, t.left = committing, len(t.parts)
	d := protocol.Transaction{TS: t.ts, Client: e.client}
	for i := range t.parts {
		e.send(t.parts[i].link, &call{op: protocol.OpCommit, life: t.parts[i].life, same: true, size: protocol.TransactionSize, append: d.AppendBody,
			done: func(_ *call, s protocol.Status, _ []byte, err error) {
				if t.ended {
					return
				}
				// invariant 7: the partitions have finished the transaction, and forgotten it
				if e.replicas && s == protocol.StatusUnknown && err == nil {
					s = protocol.StatusOK
				}
				if s != protocol.StatusOK && t.err == nil {
					t.err = fmt.Errorf("%w: %v", ErrUnknownOutcome, s)
				}
				if t.left--; t.left == 0 {
					t.end(e, t.err)
				}
			}})
	}
}

// refused aborts a transaction that some partition has refused, and retries with a newer timestamp if that may help.
func (t *put) refused(e *engine) {
	if t.again { // the transaction may have been committed and forgotten before this PREPARE was refused
		t.end(e, ErrUnknownOutcome)
		return
	}
	d := protocol.Transaction{TS: t.ts, Client: e.client}
	if len(t.parts) > 1 {
		for i := range t.parts {
			e.send(t.parts[i].link, &call{op: protocol.OpAbort, size: protocol.TransactionSize, append: d.AppendBody,
				done: func(*call, protocol.Status, []byte, error) {}})
		}
	}
	switch {
	case t.err != errRefused:
		t.end(e, t.err)
	default:
		e.counts.Retries++
		e.clock.Seen(t.newest)
		if t.taken {
			e.clock.Renumber(e.stride)
		}
		t.refusals++
		e.retry(&t.underWay, t.refusals, func() { t.begin(e) })
	}
}

func (t *put) end(e *engine, err error) {
	if !e.ended(&t.underWay) {
		return
	}
	ts := t.ts
	if err != nil {
		ts = 0
	}
	t.done(ts, err)
}

// abandon leaves the transaction to the partitions.
func (t *put) abandon(e *engine, why error) { t.end(e, fmt.Errorf("%w (%w)", ErrUnknownOutcome, why)) }

func (t *put) links() (list []*link) {
	for i := range t.parts {
		list = append(list, t.parts[i].link)
	}
	return list
}
