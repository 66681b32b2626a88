package hydra

import (
	"context"
	"fmt"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/hydra/protocol"
)

// Limits, in bytes.
const (
	// MaxKey is the longest key of a value of up to MaxValue bytes. For longer values, up to MaxLarge, it is
	// MaxLargeKey. large.go says what such a value costs.
	MaxKey      = protocol.MaxKey
	MaxLargeKey = MaxKey - circle.ChunkHead
	MaxValue    = protocol.MaxValue
	MaxLarge    = protocol.MaxLarge
)

// Expiry says when a key expires. The zero value means never.
type Expiry struct {
	flags protocol.Flags
	ms    uint64
}

// In returns the expiry d after the shard applies the write, in whole milliseconds, at least one.
func In(d time.Duration) Expiry {
	return Expiry{protocol.FlagRelative, uint64(max(d.Milliseconds(), 1))}
}

// At returns the expiry at a time of the shard's wall clock, in whole milliseconds.
func At(t time.Time) Expiry { return Expiry{0, uint64(max(t.UnixMilli(), 1))} }

// Keep leaves the key's expiry as it is.
func Keep() Expiry { return Expiry{flags: protocol.FlagKeepExpiry} }

// Item is a value with its version and expiry.
type Item struct {
	Value   []byte
	Version uint64    // of the last write; later versions of a key are greater
	Expiry  time.Time // zero: never

	flags protocol.ItemFlags
}

// Get returns the key's value. The error is ErrNotFound if the key does not exist.
func (c *Client) Get(ctx context.Context, key []byte) ([]byte, error) {
	return c.GetInto(ctx, key, nil)
}

// GetInto appends the key's value to dst; if dst has room, it allocates nothing.
func (c *Client) GetInto(ctx context.Context, key, dst []byte) ([]byte, error) {
	if len(key) > MaxKey {
		return dst, ErrTooLarge
	}
	o := c.get(protocol.OpGet, key)
	o.dst = dst
	c.read(ctx, o)
	out, err := o.out, o.err
	if err == nil && o.call.itemFlags&protocol.ItemManifest != 0 {
		i := o.call.result()
		i.Value = i.Value[len(dst):]
		i, err = c.whole(ctx, key, dst, i)
		out = i.Value
	}
	c.put(o)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// read carries out a GET.
func (c *Client) read(ctx context.Context, o *op) {
	if c.lines == nil {
		if now, made := c.e.readNow(o); made {
			if now >= c.tickDue.Load() {
				c.tickNow()
			}
			return
		}
	}
	c.run(ctx, &o.w, o.list[:])
}

// GetItem returns the key's value with its version and expiry.
func (c *Client) GetItem(ctx context.Context, key []byte) (Item, error) {
	i, err := c.getItem(ctx, key)
	if err == nil && i.flags&protocol.ItemManifest != 0 {
		return c.whole(ctx, key, nil, i)
	}
	return i, err
}

// getItem returns the key's item: for a value in chunks the manifest.
func (c *Client) getItem(ctx context.Context, key []byte) (Item, error) {
	if len(key) > MaxKey {
		return Item{}, ErrTooLarge
	}
	o := c.get(protocol.OpGet, key)
	c.read(ctx, o)
	i, err := o.call.result(), o.err
	c.put(o)
	return i, err
}

func (c *call) result() Item {
	i := Item{Value: c.out, Version: c.version, flags: c.itemFlags}
	if c.expires != 0 {
		i.Expiry = time.UnixMilli(int64(c.expires))
	}
	return i
}

// Put sets the key, and returns its new version. Without an Expiry it never expires.
func (c *Client) Put(ctx context.Context, key, value []byte, e ...Expiry) (version uint64, err error) {
	return c.write(ctx, protocol.OpPut, 0, key, value, 0, e)
}

// Insert sets the key if it does not exist. Otherwise the error is ErrExists, and version is the present version.
func (c *Client) Insert(ctx context.Context, key, value []byte, e ...Expiry) (version uint64, err error) {
	return c.write(ctx, protocol.OpInsert, 0, key, value, 0, e)
}

// Update sets the key if it exists. Otherwise the error is ErrNotFound.
func (c *Client) Update(ctx context.Context, key, value []byte, e ...Expiry) (version uint64, err error) {
	return c.write(ctx, protocol.OpUpdate, 0, key, value, 0, e)
}

// Delete removes the key. The error is ErrNotFound if it does not exist.
func (c *Client) Delete(ctx context.Context, key []byte) error {
	_, err := c.write(ctx, protocol.OpRemove, 0, key, nil, 0, nil)
	return err
}

// CompareAndSet sets the key if its version is old; 0 stands for a key that does not exist. Otherwise the error is
// ErrVersion, and version is the present version.
func (c *Client) CompareAndSet(ctx context.Context, key []byte, old uint64, value []byte, e ...Expiry) (version uint64, err error) {
	return c.write(ctx, protocol.OpCompareAndSet, 0, key, value, old, e)
}

// CompareAndDelete removes the key if its version is old. Otherwise the error is ErrVersion.
func (c *Client) CompareAndDelete(ctx context.Context, key []byte, old uint64) error {
	_, err := c.write(ctx, protocol.OpCompareAndSet, protocol.FlagRemove, key, nil, old, nil)
	return err
}

// Add adds n to the decimal number that is the key's value, 0 if the key does not exist, and returns the sum. The
// expiry stays.
func (c *Client) Add(ctx context.Context, key []byte, n int64) (sum int64, err error) {
	if len(key) > MaxKey {
		return 0, ErrTooLarge
	}
	o := c.get(protocol.OpAdd, key)
	o.arg, o.flags = uint64(n), protocol.FlagKeepExpiry
	c.run(ctx, &o.w, o.list[:])
	sum, err = o.sum, o.err
	c.put(o)
	return sum, err
}

func (c *Client) write(ctx context.Context, code protocol.Op, f protocol.Flags, key, value []byte, arg uint64, e []Expiry) (uint64, error) {
	var ends Expiry
	if len(e) > 0 {
		ends = e[0]
	}
	if len(value) > MaxValue {
		return c.writeLarge(ctx, code, f, key, value, arg, ends)
	}
	return c.writeItem(ctx, code, f, 0, key, value, arg, ends)
}

// writeItem writes one item.
func (c *Client) writeItem(ctx context.Context, code protocol.Op, f protocol.Flags, is protocol.ItemFlags, key, value []byte, arg uint64, e Expiry) (uint64, error) {
	if len(key) > MaxKey {
		return 0, ErrTooLarge
	}
	o := c.get(code, key)
	o.value, o.arg, o.flags, o.item, o.expiry = value, arg, f|e.flags, is, e.ms
	c.run(ctx, &o.w, o.list[:])
	version, err := o.version, o.err
	c.put(o)
	return version, err
}

// Kind is the operation of a Request of a batch.
type Kind uint8

// The kinds.
const (
	Get Kind = 1 + iota
	Put
	Insert
	Update
	Delete
	CompareAndSet
	CompareAndDelete
	Add
)

var kinds = [...]struct {
	op    protocol.Op
	flags protocol.Flags
}{
	Get: {protocol.OpGet, 0}, Put: {protocol.OpPut, 0}, Insert: {protocol.OpInsert, 0}, Update: {protocol.OpUpdate, 0},
	Delete: {protocol.OpRemove, 0}, CompareAndSet: {protocol.OpCompareAndSet, 0},
	CompareAndDelete: {protocol.OpCompareAndSet, protocol.FlagRemove}, Add: {protocol.OpAdd, protocol.FlagKeepExpiry},
}

// Request is one operation of a batch, and then its result.
type Request struct {
	Kind   Kind
	Key    []byte
	Value  []byte
	Expiry Expiry
	Old    uint64 // version, for CompareAndSet and CompareAndDelete
	N      int64  // for Add

	Item Item  // of Get; of the other kinds only its version
	Sum  int64 // of Add
	Err  error
}

// Batch carries out many operations at once: they travel together, and each succeeds or fails on its own. They are no
// transaction, and take effect in no particular order. The error is nil if every Err is nil, otherwise the first one
// that is not. The values of one batch may share memory: appending to one does not change another, but keeping one
// value may keep up to 16 KiB. Of values above MaxValue a batch returns up to 16 times MaxValue bytes: a value that
// exceeds this has ErrTooLarge, and has to be read separately.
func (c *Client) Batch(ctx context.Context, list []Request) error {
	first := c.batch(ctx, list)
	for i := range list {
		if r := &list[i]; r.Err == errLarge || r.Item.flags&protocol.ItemManifest != 0 {
			return c.batchLarge(ctx, list)
		}
	}
	return first
}

// batch leaves out values in chunks: requests to write one get errLarge, and requests to read one get its manifest.
func (c *Client) batch(ctx context.Context, list []Request) error {
	o := c.batches.Get().(*batchOp)
	if c.lines != nil && len(list) > 1 {
		return c.batchLocal(ctx, o, list)
	}
	w, run := &o.w, o.run[:0]
	if cap(o.calls) < len(list) {
		o.calls = make([]call, len(list))
	}
	calls := o.calls[:len(list)]
	for i := range list {
		r := &list[i]
		if r.Err = r.wrong(i); r.Err != nil {
			continue
		}
		k := kinds[r.Kind]
		x := &calls[i]
		*x = call{op: k.op, flags: k.flags | r.Expiry.flags, key: r.Key, expiry: r.Expiry.ms, arg: r.Old, waiter: w, slot: -1, many: len(list) > 1}
		switch r.Kind {
		case Put, Insert, Update, CompareAndSet:
			x.value = r.Value
		case Add:
			x.arg = uint64(r.N)
		}
		run = append(run, x)
	}
	if len(run) > 0 {
		c.run(ctx, w, run)
	}
	var first error
	for i := range list {
		r, x := &list[i], &calls[i]
		if x.op != 0 {
			r.Item, r.Sum, r.Err = x.result(), x.sum, x.err
		}
		if r.Err != nil && first == nil {
			first = r.Err
		}
	}
	clear(calls)
	clear(run)
	if o.run = run; len(list) <= maxPooled {
		c.batches.Put(o)
	}
	return first
}

// wrong returns why request i of a batch cannot be sent.
func (r *Request) wrong(i int) error {
	switch {
	case r.Kind == 0 || int(r.Kind) >= len(kinds):
		return fmt.Errorf("hydra: request %d of the batch has kind %d", i, r.Kind)
	case len(r.Key) > MaxKey || len(r.Value) > MaxLarge:
		return ErrTooLarge
	case len(r.Value) > MaxValue:
		switch r.Kind {
		case Put, Insert, Update, CompareAndSet:
			return errLarge
		}
	}
	return nil
}

// A batchOp is the memory of a Batch, for reuse.
type batchOp struct {
	w     waiter
	calls []call
	run   []*call
	parts []*parts // in a local client: the parts of one batch, by line
}

const maxPooled = 1024 // requests of a batch whose memory is kept
