package dbm

import "time"

// Batch collects puts, deletes and range deletes in memory, for one commit. It suits a program that receives writes
// one by one, from a channel for example, and has no function for Update to run. Nothing of a batch is in the
// database, or visible to readers, before Commit. A batch holds no snapshot, so it may be kept for any length of
// time. It must be used by one goroutine at a time.
//
// A batch holds all its keys and values in memory. For writes larger than memory use a transaction, with
// Tx.PutReader for large single values.
type Batch struct {
	db    *DB
	bytes []byte // keys and values of ops, concatenated in the order of ops
	ops   []batchOp
	times bool // ops has a batchPutTTL
}

// batchOp is one operation. Its key and value, or the two ends of its range, are the next key+value bytes of
// Batch.bytes.
type batchOp struct {
	key, value int // lengths in bytes
	kind       batchKind
}

type batchKind uint8

const (
	batchPut batchKind = iota
	batchDelete
	batchRange
	batchRangeToEnd // a range without an upper end; the value is empty
	batchPutTTL     // the value is the expiry time in timeBytes bytes, then the user's value
)

const (
	batchOpBytes = 24 // bytes of memory for one batchOp

	// batchKept, in bytes, bounds the memory that an emptied batch keeps for its next operations: this much for
	// keys and values, and as much again for ops. A larger batch frees its memory, so that one large batch does not
	// occupy memory for as long as the program runs.
	batchKept = 1 << 20
)

// Batch returns an empty batch.
func (db *DB) Batch() *Batch { return &Batch{db: db} }

// Put adds a put to the batch. It copies key and value. The last write of a key in the batch wins. ErrKeyTooLarge,
// ErrValueTooLarge.
func (b *Batch) Put(key, value []byte) error { return b.add(key, value, batchPut) }

// PutTTL adds a put of a record that expires after ttl, counted from this call and not from Commit: see Tx.PutTTL.
// The record may have expired when Commit is called.
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

// Delete adds a delete of key; an absent key is no error at Commit. ErrKeyTooLarge.
func (b *Batch) Delete(key []byte) error { return b.add(key, nil, batchDelete) }

// DeleteRange adds a delete of all records with from <= key < to; nil is an open end. The delete applies to the
// records that exist when Commit runs and to earlier puts of the batch, not to later ones. Commit of a batch with
// a range reads the range, so its transaction can conflict and is then run again: see Tx.DeleteRange and Update.
// ErrKeyTooLarge.
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

// Len returns the number of operations in the batch. A range counts as one.
func (b *Batch) Len() int { return len(b.ops) }

// Size returns the bytes of keys and values in the batch. The batch takes about that much memory, and its redo
// records will take a little more in the log.
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

// Commit applies the batch in one transaction, all or nothing, and returns when Options.Durability says. A batch
// without ranges reads nothing and so never conflicts, like DB.Put. After success the batch is empty and may be
// filled again.
//
// After an error the batch is unchanged: call Commit again, or Reset. ErrFull, ErrReadOnly, ErrClosed, ErrFailed.
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
			err = tx.DeleteRange(key, append([]byte{}, value...)) // never nil, which is an open end
		case batchRangeToEnd:
			err = tx.DeleteRange(key, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
