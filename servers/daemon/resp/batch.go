package resp

import (
	"errors"
	"hash/maphash"
	"slices"

	"flashdbm/servers/hydra"
)

// maxBatch is how many requests of a pipeline or of a command travel together. All values of a batch are in memory at
// once. With a larger batch, the comparison of all keys with each other takes longer than the hand-overs to the
// shards that the batch saves.
const maxBatch = 128

// An answer says how the result of a request is answered.
type answer uint8

const (
	answerValue     answer = iota // the value, null if there is none
	answerLength                  // the length of the value, 0 if there is none
	answerOK                      // OK
	answerOKOrNull                // OK, null if the condition did not hold
	answerOneOrZero               // 1, 0 if the condition did not hold
	answerSum                     // the new number
)

// A batch has requests of a pipeline that were not sent yet.
//
// Invariant: if one of its requests writes, no other request has the same key. So the requests may take effect in any
// order.
type batch struct {
	list    []hydra.Request
	answers []answer
	hashes  []uint64   // of the keys
	seen    [32]uint64 // a bit for each hash, by its low bits: most keys are found to be new without a comparison with all other keys
	writes  int
}

var hashSeed = maphash.MakeSeed()

func hashOf(key []byte) uint64 { return maphash.Bytes(hashSeed, key) }

// queue adds a request to the batch. Key and value stay where they are in the input until the batch has run.
func (c *conn) queue(r hydra.Request, a answer) {
	b := &c.batch
	write := r.Kind != hydra.Get
	h := hashOf(r.Key)
	if len(b.list) > 0 && b.full(h, write) {
		c.runBatch()
	}
	b.add(h)
	b.list, b.answers = append(b.list, r), append(b.answers, a)
	if write {
		b.writes++
	}
}

// full reports whether a request on a key with that hash has to wait for the batch.
func (b *batch) full(hash uint64, write bool) bool {
	return len(b.list) == maxBatch || (write || b.writes > 0) && b.has(hash)
}

// has reports whether a key with that hash is among the requests. It does not distinguish reads from writes: two
// reads of a key also end the batch if another request writes, which only costs time.
func (b *batch) has(hash uint64) bool {
	if b.seen[hash>>6%32]>>(hash%64)&1 == 0 {
		return false
	}
	for _, h := range b.hashes {
		if h == hash {
			return true
		}
	}
	return false
}

// add notes the hash of a key.
func (b *batch) add(hash uint64) {
	b.hashes = append(b.hashes, hash)
	b.seen[hash>>6%32] |= 1 << (hash % 64)
}

// runBatch sends the requests of the batch, and answers them.
func (c *conn) runBatch() {
	b := &c.batch
	switch len(b.list) {
	case 0:
		return
	case 1:
		c.runOne(&b.list[0], b.answers[0])
	default:
		c.s.store.Batch(c.s.ctx, b.list)
		c.answerBatch()
		return
	}
	b.reset()
}

// answerBatch answers the batch, which has ended.
func (c *conn) answerBatch() {
	b := &c.batch
	for i := range b.list {
		r := &b.list[i]
		c.askAgain(r)
		c.answer(r, b.answers[i])
		c.out.bounded()
		r.Item.Value = nil // the value may be long, and others are still to be answered
	}
	b.reset()
}

// askAgain gets a value that the batch did not get.
func (c *conn) askAgain(r *hydra.Request) {
	if r.Incomplete() {
		r.Item, r.Err = c.s.store.GetItem(c.s.ctx, r.Key)
	}
}

// runOne runs a batch of one request. Frequent requests allocate nothing.
func (c *conn) runOne(r *hydra.Request, a answer) {
	switch r.Kind {
	case hydra.Get:
		c.value, r.Err = c.s.store.GetInto(c.s.ctx, r.Key, c.value[:0])
		r.Item.Value = c.value
		if cap(c.value) > outputKeep {
			c.value = nil
		}
	case hydra.Put:
		_, r.Err = c.s.store.Put(c.s.ctx, r.Key, r.Value, r.Expiry)
	default:
		c.s.store.Batch(c.s.ctx, c.batch.list)
	}
	c.answer(r, a)
}

// answer answers a request that has ended.
func (c *conn) answer(r *hydra.Request, a answer) {
	absent := errors.Is(r.Err, hydra.ErrNotFound) || errors.Is(r.Err, hydra.ErrExists) || c.s.o.Evicts && errors.Is(r.Err, hydra.ErrIncomplete)
	if r.Err != nil && !absent {
		c.storeError(r.Err)
		return
	}
	switch a {
	case answerValue:
		if absent {
			c.out.null()
		} else {
			c.out.bulk(r.Item.Value)
		}
	case answerLength:
		if absent {
			c.out.integer(0)
		} else {
			c.out.integer(int64(len(r.Item.Value)))
		}
	case answerOK:
		c.out.simple("OK")
	case answerOKOrNull:
		if absent {
			c.out.null()
		} else {
			c.out.simple("OK")
		}
	case answerOneOrZero:
		if absent {
			c.out.integer(0)
		} else {
			c.out.integer(1)
		}
	case answerSum:
		c.out.integer(r.Sum)
	}
}

// each runs n requests of one command, and passes their results to got in order. The batch is empty before and after.
func (c *conn) each(n int, request func(i int, r *hydra.Request), got func(*hydra.Request)) {
	b := &c.batch
	run := func() {
		if len(b.list) > 0 {
			c.s.store.Batch(c.s.ctx, b.list)
		}
		for i := range b.list {
			r := &b.list[i]
			c.askAgain(r)
			got(r)
			r.Item.Value = nil
		}
		b.reset()
	}
	for i := range n {
		r := b.next()
		request(i, r)
		h := hashOf(r.Key)
		if len(b.list) == maxBatch || (r.Kind != hydra.Get && b.has(h)) {
			*r = hydra.Request{}
			run()
			r = b.next()
			request(i, r)
		}
		b.add(h)
		b.list = b.list[:len(b.list)+1]
	}
	run()
}

// next returns the memory of the next request, all of whose fields are zero.
func (b *batch) next() *hydra.Request {
	b.list = slices.Grow(b.list, 1)
	return &b.list[:len(b.list)+1][len(b.list)]
}

func (b *batch) reset() {
	clear(b.list)
	b.list, b.answers, b.hashes, b.writes = b.list[:0], b.answers[:0], b.hashes[:0], 0
	b.seen = [32]uint64{}
}
