package ramp

import (
	"fmt"
	"slices"

	"flashdbm/servers/ramp/protocol"
)

// Strict two-phase locking with wait-die and two-phase commit is the baseline to which the papers compare RAMP. A
// read locks its keys, shared, at one partition after another, reads, and releases the locks. A write locks its keys,
// exclusive, then sends PREPARE and COMMIT, then releases the locks. A transaction that dies releases all locks and
// starts again with its old timestamp, so that it grows old.
//
// A lock is in the memory of the partition's primary, and ends with the connection. So
//
//  1. a read is valid if, when it gets its last lock, it has the others on the present connections, and within their
//     partitions' tenure: otherwise another node may have granted them to other transactions. If it is not valid, it
//     releases its locks before it locks and reads all keys again. A partition that is about to hand over its reign
//     grants no tenure, and hands over once no transaction has a lock: a read that kept its locks would wait for the
//     tenure, and the partition would wait for the locks;
//  2. PREPARE goes only over the connection that has the locks. If that connection is lost, the outcome is left to
//     the partitions;
//  3. a partition reads all locked keys at once, so they have to fit into its memory: otherwise the call ends with
//     ErrFull;
//  4. a transaction that has a lock of a key with a prepared version, which a writer without connection has left,
//     waits for the version's outcome (package partition).

// A locking is a transaction's locks.
type locking struct {
	e      *engine
	id     protocol.Transaction
	groups []lockGroup
	next   int // the group to lock next
	asked  int // number of groups that may hold locks of the transaction
	tries  int // how often it has started again
	shared bool
	take   func(g *lockGroup, got *protocol.Got)
	locked func()
	failed func(err error)
	core   *underWay
}

type lockGroup struct {
	link *link
	keys [][]byte
	at   []int
	conn conn // the connection that has the locks
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
		if k.held() {
			k.locked()
			return
		}
		k.again()
		return
	}
	g := &k.groups[k.next]
	k.asked = max(k.asked, k.next+1)
	q := protocol.Lock{Transaction: k.id, Keys: g.keys}
	flags := protocol.FlagExclusive
	if k.shared {
		flags = 0
	}
	k.e.send(g.link, &call{op: protocol.OpLock, flags: flags, once: true, size: q.Size(), append: q.AppendBody, of: k.core,
		done: func(c *call, s protocol.Status, body []byte, err error) {
			var got protocol.Got
			switch {
			case err != nil: // the connection was lost, and its locks
				k.next = 0
				k.step()
			case s == protocol.StatusDie:
				k.again()
			case s != protocol.StatusOK:
				k.release()
				k.fail(failed(s))
			case got.Parse(body, len(g.keys)) != nil:
				k.release()
				k.fail(errProtocol)
			default:
				g.conn = g.link.conn
				k.e.reign(g.link, got.Term, c.sent, got.Tenure)
				k.take(g, &got)
				k.next++
				k.step()
			}
		}})
}

// again releases all locks, and restarts the transaction after a pause.
func (k *locking) again() {
	k.release()
	k.e.counts.Retries++
	k.tries++
	k.e.retry(k.core, k.tries, k.start)
}

// held reports whether the transaction still has all of its locks (rules 1 and 2). The lock of the last group has
// just been granted.
func (k *locking) held() bool {
	k.e.look()
	for i := range k.groups {
		if g := &k.groups[i]; g.conn != g.link.conn || k.shared && i < len(k.groups)-1 && k.e.now >= g.link.tenure {
			return false
		}
	}
	return true
}

// conn returns the connection that has the locks of a partition.
func (k *locking) conn(l *link) conn {
	i := slices.IndexFunc(k.groups, func(g lockGroup) bool { return g.link == l })
	return k.groups[i].conn
}

func (k *locking) fail(err error) {
	if !k.core.ended {
		k.failed(err)
	}
}

// release releases the locks at all partitions that were asked.
func (k *locking) release() {
	for i := range k.groups[:k.asked] {
		k.e.send(k.groups[i].link, &call{op: protocol.OpUnlock, once: true, size: protocol.TransactionSize, append: k.id.AppendBody,
			done: func(*call, protocol.Status, []byte, error) {}})
	}
	k.asked = 0
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
	k.locked = func() { t.end(e, t.values(), t.err) }
	inner := t.done
	t.done = func(v []Value, err error) {
		k.release()
		inner(v, err)
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
			e.clock.Seen(got.Versions[i].TS) // the new version must be above the present one
		}
	}
	k.failed = func(err error) { t.end(e, fmt.Errorf("%w", err)) }
	k.locked = func() {
		t.locks = k
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
