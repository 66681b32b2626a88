package ramp

import (
	"fmt"
	"slices"

	"flashdbm/servers/ramp/protocol"
)

// Strict two-phase locking with wait-die and two-phase commit, the baseline that the papers compare RAMP with. A read locks its keys, shared, at the
// partitions one after the other, reads, and releases. A write locks them, exclusive, then sends PREPARE and COMMIT, then releases. A transaction
// that dies releases all and begins anew with the timestamp that it had, so that it grows old.

// A locking is a transaction's locks.
type locking struct {
	e       *engine
	id      protocol.Transaction
	groups  []lockGroup
	next    int // the group that is locked next
	shared  bool
	take    func(g *lockGroup, got *protocol.Got)
	locked  func()
	failed  func(err error)
	core    *underWay
	unlocks int
}

type lockGroup struct {
	link *link
	keys [][]byte
	at   []int
}

// start takes the locks, partition by partition in the order of their numbers.
func (k *locking) start() {
	slices.SortFunc(k.groups, func(a, b lockGroup) int { return int(a.link.number) - int(b.link.number) })
	k.next = 0
	k.step()
}

func (k *locking) step() {
	if k.core.ended {
		k.release()
		return
	}
	if k.next == len(k.groups) {
		k.locked()
		return
	}
	g := &k.groups[k.next]
	q := protocol.Lock{Transaction: k.id, Keys: g.keys}
	flags := protocol.FlagExclusive
	if k.shared {
		flags = 0
	}
	k.e.send(g.link, &call{op: protocol.OpLock, flags: flags, once: true, size: q.Size(), append: q.AppendBody,
		done: func(_ *call, s protocol.Status, body []byte, err error) {
			var got protocol.Got
			switch {
			case err != nil:
				k.release()
				k.fail(err)
			case s == protocol.StatusDie:
				k.next++
				k.release()
				k.e.counts.Retries++
				k.start()
			case s != protocol.StatusOK:
				k.release()
				k.fail(failed(s))
			case got.Parse(body, len(g.keys)) != nil:
				k.release()
				k.fail(errProtocol)
			default:
				k.take(g, &got)
				k.next++
				k.step()
			}
		}})
}

func (k *locking) fail(err error) {
	if !k.core.ended {
		k.failed(err)
	}
}

// release gives back the locks of all partitions that were asked.
func (k *locking) release() {
	for i := range k.groups[:min(k.next+1, len(k.groups))] {
		k.e.send(k.groups[i].link, &call{op: protocol.OpUnlock, once: true, size: protocol.TransactionSize, append: k.id.AppendBody,
			done: func(*call, protocol.Status, []byte, error) {}})
	}
}

func (e *engine) startLockedGet(keys [][]byte, deadline int64, done func([]Value, error)) transaction {
	t := &get{done: done}
	t.deadline = deadline
	if err := t.sort(e, keys); err != nil {
		t.ended = true
		done(nil, err)
		return t
	}
	e.run(t)
	for i := range t.keys {
		t.ask(i)
	}
	k := &locking{e: e, id: protocol.Transaction{TS: e.clock.Next(e.wall), Client: e.client}, shared: true, core: &t.underWay}
	for _, g := range t.groups {
		x := lockGroup{link: g.link, at: g.keys}
		for _, i := range g.keys {
			x.keys = append(x.keys, t.keys[i].key)
		}
		k.groups = append(k.groups, x)
	}
	k.take = func(g *lockGroup, got *protocol.Got) {
		for n, i := range g.at {
			v := &got.Versions[n]
			t.set(&t.keys[i], v.State, v.TS, v.Content)
		}
	}
	k.failed = func(err error) { t.end(e, nil, err) }
	k.locked = func() {
		k.release()
		t.end(e, t.values(), t.err)
	}
	k.start()
	return t
}

func (e *engine) startLockedPut(pairs []Pair, deadline int64, done func(Timestamp, error)) transaction {
	t := &put{done: done}
	t.deadline = deadline
	if err := t.split(e, pairs); err != nil {
		t.ended = true
		done(0, err)
		return t
	}
	e.run(t)
	k := &locking{e: e, id: protocol.Transaction{TS: e.clock.Next(e.wall), Client: e.client}, core: &t.underWay}
	for i := range t.parts {
		g := lockGroup{link: t.parts[i].link}
		for _, p := range t.parts[i].body.Parts {
			g.keys = append(g.keys, p.Key)
		}
		k.groups = append(k.groups, g)
	}
	k.take = func(_ *lockGroup, got *protocol.Got) {
		for i := range got.Versions {
			e.clock.Seen(got.Versions[i].TS) // the new version is above what is there
		}
	}
	k.failed = func(err error) { t.end(e, fmt.Errorf("%w", err)) }
	k.locked = func() {
		t.twoPhase = true
		t.begin(e)
	}
	inner := t.done
	t.done = func(ts Timestamp, err error) {
		k.release()
		inner(ts, err)
	}
	k.start()
	return t
}
