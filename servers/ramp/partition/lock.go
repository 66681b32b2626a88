package partition

import (
	"bytes"
	"slices"

	"flashdbm/servers/ramp/protocol"
)

// Strict two-phase locking with wait-die is the baseline to which the papers compare RAMP: a lock for each key,
// shared or exclusive, and a queue. A transaction that asks for a lock which a younger one has waits; if an older one
// has it, the transaction dies, and starts again with its timestamp. So no transaction waits for an older one, and
// waits never form a cycle; of two transactions with the same timestamp, one is treated as the older. Locks are in
// memory and end with the client's connection, because two-phase locking cannot proceed without a live client.

type lockTable struct{ keys map[string]*lock }

func (l *lockTable) init() { l.keys = map[string]*lock{} }

type lock struct {
	holders []holder
	queue   []*lockWait // in the order of arrival
}

type holder struct {
	protocol.Transaction // the transaction
	conn                 *conn
	exclusive            bool
}

type lockWait struct {
	holder
	key   []byte
	grant func() // nil: given up
	die   func()
}

// Lock takes locks of keys one after another, then answers with their newest versions. The transaction dies at the
// first lock that an older one has. It waits for the outcome of prepared versions of its keys: their writer has lost
// its locks with its connection, and has to change all of its keys or none.
func (p *Partition) Lock(c *conn, q *protocol.Lock, exclusive bool, each func(i int, v *protocol.Version), done func(protocol.Status)) {
	keys := make([][]byte, len(q.Keys))
	get := &protocol.Get{}
	for i, k := range q.Keys {
		keys[i] = bytes.Clone(k)
		get.Keys = append(get.Keys, protocol.Wanted{Key: keys[i]})
	}
	h := holder{q.Transaction, c, exclusive}
	var next func(i int)
	next = func(i int) {
		for ; i < len(keys); i++ {
			if !p.locks.take(keys[i], h, func() { next(i + 1) }, func() { done(protocol.StatusDie) }) {
				return
			}
		}
		p.read(get, 0, true, each, done)
	}
	next(0)
}

// take gives the lock to the transaction, or makes it wait, or die. It returns true if the transaction has the lock.
func (l *lockTable) take(key []byte, h holder, grant, die func()) bool {
	x := l.keys[string(key)]
	if x == nil {
		x = &lock{}
		l.keys[string(key)] = x
	}
	switch fits, older := x.fits(&h); {
	case fits:
		x.hold(h)
		return true
	case older:
		die()
	default:
		x.queue = append(x.queue, &lockWait{h, key, grant, die})
	}
	return false
}

// fits reports whether the transaction may share the lock with its holders, and whether a conflicting holder, or one
// that waits before it, is older.
func (x *lock) fits(h *holder) (fits, older bool) {
	fits = true
	look := func(o *holder) {
		if o.Transaction != h.Transaction && (o.exclusive || h.exclusive) {
			fits = false
			older = older || o.TS < h.TS || o.TS == h.TS && o.Client < h.Client
		}
	}
	for i := range x.holders {
		look(&x.holders[i])
	}
	for _, w := range x.queue {
		look(&w.holder)
	}
	return fits, older
}

func (x *lock) hold(h holder) {
	if i := slices.IndexFunc(x.holders, func(o holder) bool { return o.Transaction == h.Transaction }); i >= 0 {
		x.holders[i].exclusive = x.holders[i].exclusive || h.exclusive
		x.holders[i].conn = h.conn // the end of another connection does not end the lock
		return
	}
	x.holders = append(x.holders, h)
}

// release releases the locks that match, removes matching waiters, and grants the locks to transactions that wait.
func (l *lockTable) release(match func(*holder) bool) {
	var granted []func()
	for key, x := range l.keys {
		x.holders = slices.DeleteFunc(x.holders, func(h holder) bool { return match(&h) })
		x.queue = slices.DeleteFunc(x.queue, func(w *lockWait) bool { return match(&w.holder) })
		granted = append(granted, x.serve()...)
		if len(x.holders)+len(x.queue) == 0 {
			delete(l.keys, key)
		}
	}
	for _, g := range granted {
		g()
	}
}

// serve grants the lock to waiters at the head of the queue.
func (x *lock) serve() (granted []func()) {
	for len(x.queue) > 0 {
		w := x.queue[0]
		rest := x.queue
		x.queue = nil
		fits, _ := x.fits(&w.holder)
		if x.queue = rest; !fits {
			break
		}
		x.queue = x.queue[1:]
		x.hold(w.holder)
		granted = append(granted, w.grant)
	}
	return granted
}

// Unlock releases the locks of a transaction.
func (p *Partition) Unlock(d protocol.Transaction) {
	p.locks.release(func(h *holder) bool { return h.Transaction == d })
}
