package dbm

import "time"

// Batch collects puts, deletes and deletes of ranges in memory, for one commit. It is for who gets writes one after the other, from a channel for example, and
// has no function that Update could run. Nothing of a batch is in the database before Commit, nor seen by any reader, and a batch holds no
// snapshot: it may be kept for as long as one likes. One goroutine uses a batch at a time.
//
// A batch takes memory for all that is in it. What is larger than memory is written by a transaction, with Tx.PutReader for single values.
type Batch struct {
	db    *DB
	bytes []byte // keys and values of ops, one behind the other
	ops   []batchOp
	times bool // there is a put of a record that expires
}

// batchOp is a put, a delete, or the delete of a range. Its key and value, or the ends of the range, are the next bytes of the batch.
type batchOp struct {
	key, value int // lengths
	kind       batchKind
}

type batchKind uint8

const (
	batchPut batchKind = iota
	batchDelete
	batchRange
	batchRangeToEnd // value has no meaning
	batchPutTTL     // value is the time that the record expires at, and then its value
)

const (
	batchOpBytes = 24 // of memory for a batchOp

	// batchKept is up to how many bytes of keys and values, and as many of operations, a batch that was emptied keeps its memory for what
	// comes next. A larger one gives it back, so that a single large batch does not take its memory for as long as the program runs.
	batchKept = 1 << 20
)

// Batch returns an empty batch for this database.
func (db *DB) Batch() *Batch { return &Batch{db: db} }

// Put has Commit set the value of key. It copies both. Of several writes of a key the last one counts. ErrKeyTooLarge, ErrValueTooLarge.
func (b *Batch) Put(key, value []byte) error { return b.add(key, value, batchPut) }

// PutTTL is Put of a record that expires in ttl, counted from this call: see Tx.PutTTL. It may be over when Commit is called.
func (b *Batch) PutTTL(key, value []byte, ttl time.Duration) error {
	if err := checkSizes(key, value); err != nil {
		return err
	}
	at, err := b.db.expiry.expiryTime(ttl)
	if err != nil {
		return err
	}
	b.bytes = append(appendTime(append(b.bytes, key...), at), value...)
	b.ops = append(b.ops, batchOp{len(key), timeBytes + len(value), batchPutTTL})
	b.times = true
	return nil
}

// Delete has Commit remove key; it is no error if there is none then. ErrKeyTooLarge.
func (b *Batch) Delete(key []byte) error { return b.add(key, nil, batchDelete) }

// DeleteRange has Commit remove the records with from <= key < to that there are then; nil is an open end. What the batch puts after it stays. A
// batch with a range reads that when it is committed, and may have to try again: see Tx.DeleteRange and Update. ErrKeyTooLarge.
func (b *Batch) DeleteRange(from, to []byte) error {
	kind := batchRange
	if to == nil {
		kind = batchRangeToEnd
	}
	if err := checkSizes(to, nil); err != nil {
		return err
	}
	return b.add(from, to, kind)
}

func (b *Batch) add(key, value []byte, kind batchKind) error {
	if err := checkSizes(key, value); err != nil {
		return err
	}
	b.bytes = append(append(b.bytes, key...), value...)
	b.ops = append(b.ops, batchOp{len(key), len(value), kind})
	return nil
}

// Len returns the number of operations in the batch: a range is one.
func (b *Batch) Len() int { return len(b.ops) }

// Size returns the bytes of their keys and values, which is about what the batch takes of memory and a little less than it will take of the
// log.
func (b *Batch) Size() int64 { return int64(len(b.bytes)) }

// Reset empties the batch.
func (b *Batch) Reset() {
	b.bytes, b.ops, b.times = b.bytes[:0], b.ops[:0], false
	if cap(b.bytes) > batchKept {
		b.bytes = nil
	}
	if cap(b.ops) > batchKept/batchOpBytes {
		b.ops = nil
	}
}

// Commit applies the batch in one transaction, all or nothing, and returns when Options.Durability says that a commit does. It reads
// nothing, unless it has ranges to delete, so it never conflicts, like DB.Put. Then the batch is empty and may be filled again.
//
// After an error the batch has all that it had, and Commit may be tried again, or Reset called. ErrFull, ErrReadOnly, ErrClosed, ErrFailed.
func (b *Batch) Commit() error {
	if err := b.db.Update(b.write); err != nil {
		return err
	}
	b.Reset()
	return nil
}

func (b *Batch) write(tx *Tx) error {
	left := b.bytes
	for _, op := range b.ops {
		key, value := left[:op.key], left[op.key:op.key+op.value]
		left = left[op.key+op.value:]
		var err error
		switch op.kind {
		case batchPut:
			err = tx.Put(key, value)
		case batchPutTTL:
			err = putUntil(tx, key, value[timeBytes:], readTime(value))
		case batchDelete:
			err = tx.Delete(key)
		case batchRange:
			err = tx.DeleteRange(key, value)
		case batchRangeToEnd:
			err = tx.DeleteRange(key, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
