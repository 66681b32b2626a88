package hydra

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
)

// A value longer than MaxValue is written as chunks of MaxValue bytes, items with keys of their own (circle.Chunk),
// and then a manifest as the key's item, with the caller's operation. A reader of the key finds the manifest, and
// reads the chunks that it lists.
//
// Invariants:
//
//  1. The manifest is written when all of its chunks have been acknowledged. Chunks and manifest are in one shard, so
//     its log has them in this order, and after a crash there is no manifest without its chunks.
//  2. A chunk's key has an ID that was drawn for this write: no two writes write the same chunk. So the chunks that a
//     manifest lists are those of its value, and a reader returns the value of the moment at which it read the
//     manifest, even if it takes long to read the chunks.
//  3. The shard removes the chunks of a manifest after the manifest has ended (shard/chunks.go). So a reader that
//     does not find a chunk finds another manifest, or none, and starts again.
//  4. A value is returned only if it has the manifest's length and hash.
//  5. A manifest is written within uploadMost of the drawing of its ID; Sweep removes chunks that are older than
//     sweepAge and that no manifest lists. So it removes none whose manifest is still to come, as long as the two
//     clocks differ by less than sweepAge-uploadMost.
//
// A crash that loses the end of a log (async mode) may bring an older manifest back, and its chunks with it; a reader
// in between may have missed those chunks. So one attempt is not enough to report that chunks are missing:
// incompleteLooks attempts are.
const (
	uploadMost      = 30 * time.Minute
	sweepAge        = time.Hour
	incompleteLooks = 3
	incompletePause = 100 * time.Millisecond
	largeOfBatch    = 16 * MaxValue // bytes of values in chunks that a batch returns
)

// errLarge marks a request of a batch whose value is written separately.
var errLarge = errors.New("hydra: the value is written in chunks")

// drawID draws an ID for the chunks of one value.
func drawID(now time.Time) (id circle.ID) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli()))
	rand.Read(id[copy(id[:], ms[2:]):])
	return id
}

// writeLarge writes a value in chunks. Until it sends the manifest, the key is unchanged.
func (c *Client) writeLarge(ctx context.Context, code protocol.Op, f protocol.Flags, key, value []byte, arg uint64, e Expiry) (version uint64, err error) {
	if len(key) > MaxLargeKey || len(value) > MaxLarge {
		return 0, ErrTooLarge
	}
	began := time.Now()
	m := protocol.Manifest{ID: drawID(began), Size: uint64(len(value)), Hash: guard.Sum(value)}
	chunk := circle.Chunk{ID: m.ID, Key: key}
	var name []byte
	for ; err == nil && chunk.Index < m.Chunks(); chunk.Index++ {
		from := int(chunk.Index) * MaxValue
		name = chunk.Append(name[:0])
		_, err = c.writeItem(ctx, protocol.OpPut, 0, protocol.ItemChunk, name, value[from:from+m.ChunkSize(chunk.Index)], 0, Expiry{})
	}
	switch {
	case errors.Is(err, ErrUnknownOutcome): // of a chunk
		err = fmt.Errorf("%w (a part of the value: %v)", ErrUnavailable, err)
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	case err == nil && time.Since(began) > uploadMost:
		err = fmt.Errorf("%w (writing the parts of the value took longer than %v)", ErrUnavailable, uploadMost)
	case err == nil:
		version, err = c.writeItem(ctx, code, f, protocol.ItemManifest, key, m.Append(nil), arg, e)
	}
	if err != nil && !errors.Is(err, ErrUnknownOutcome) && ctx.Err() == nil { // otherwise Sweep removes them
		for i := range chunk.Index {
			c.Delete(ctx, (&circle.Chunk{ID: m.ID, Index: i, Key: key}).Append(nil))
		}
	}
	return version, err
}

// whole returns the item with the value that it lists, appended to dst, if it is a manifest. The item's own value is
// not used afterwards.
func (c *Client) whole(ctx context.Context, key, dst []byte, i Item) (Item, error) {
	for looks := 1; ; {
		if i.flags&protocol.ItemManifest == 0 { // a shorter value has been written in the meantime
			i.Value = append(dst, i.Value...)
			return i, nil
		}
		var m protocol.Manifest
		if err := m.Parse(i.Value); err != nil {
			return Item{}, fmt.Errorf("%w (%w)", ErrIncomplete, err)
		}
		value, err := c.chunks(ctx, &m, key, dst)
		if !errors.Is(err, ErrNotFound) {
			i.Value, i.flags = value, 0
			return i, err
		}
		old := i.Version
		if i, err = c.getItem(ctx, key); err != nil {
			return Item{}, err
		}
		if i.Version != old {
			looks = 1
			continue
		}
		if looks++; looks > incompleteLooks {
			return Item{}, ErrIncomplete
		}
		select {
		case <-ctx.Done():
			return Item{}, fmt.Errorf("%w (%w)", ErrUnavailable, context.Cause(ctx))
		case <-time.After(incompletePause):
		}
	}
}

// chunks appends the value of a manifest to dst. The error is ErrNotFound if a chunk is missing.
func (c *Client) chunks(ctx context.Context, m *protocol.Manifest, key, dst []byte) ([]byte, error) {
	value := dst
	chunk := circle.Chunk{ID: m.ID, Key: key}
	var name []byte
	for ; chunk.Index < m.Chunks(); chunk.Index++ {
		name = chunk.Append(name[:0])
		was := len(value)
		var err error
		if value, err = c.GetInto(ctx, name, value); err != nil {
			return dst, err
		}
		if len(value)-was != m.ChunkSize(chunk.Index) {
			return dst, ErrIncomplete
		}
		if chunk.Index == 0 {
			value = slices.Grow(value, int(m.Size)-MaxValue)
		}
	}
	if guard.Sum(value[len(dst):]) != m.Hash {
		return dst, ErrIncomplete
	}
	return value, nil
}

// batchLarge completes a batch: it writes the values of requests with errLarge, and reads the values of manifests.
func (c *Client) batchLarge(ctx context.Context, list []Request) (first error) {
	room := largeOfBatch
	for i := range list {
		r := &list[i]
		var m protocol.Manifest
		switch {
		case r.Err == errLarge:
			k := kinds[r.Kind]
			var version uint64
			version, r.Err = c.writeLarge(ctx, k.op, k.flags, r.Key, r.Value, r.Old, r.Expiry)
			r.Item = Item{Version: version}
		case r.Err == nil && r.Item.flags&protocol.ItemManifest != 0:
			if m.Parse(r.Item.Value) == nil && int(m.Size) > room {
				r.Item, r.Err = Item{}, ErrTooLarge
			} else {
				r.Item, r.Err = c.whole(ctx, r.Key, nil, r.Item)
				room -= len(r.Item.Value)
			}
		}
		if first == nil {
			first = r.Err
		}
	}
	return first
}

// Sweep removes chunks that belong to no value: those of programs that ended while they wrote a value above MaxValue,
// and those of values that a PUT has replaced unseen (see shard/chunks.go). It scans all keys, and reads the keys
// whose chunks it finds. It returns the number of chunks removed.
func (c *Client) Sweep(ctx context.Context) (removed int, err error) {
	var listed circle.Chunk // the last chunk that its manifest lists
	for cursor, more := uint64(0), true; more; {
		var page []Entry
		if page, cursor, more, err = c.scanPage(ctx, cursor, &ScanOptions{KeysOnly: true}); err != nil {
			return removed, err
		}
		for i := range page {
			chunk, ok := circle.ParseChunk(page[i].Key)
			if !ok || page[i].flags&protocol.ItemChunk == 0 || time.Since(chunk.ID.Drawn()) < sweepAge {
				continue
			}
			if chunk.ID == listed.ID && string(chunk.Key) == string(listed.Key) {
				continue
			}
			keep, err := c.lists(ctx, &chunk)
			if err != nil {
				return removed, err
			}
			if keep {
				listed = chunk
				continue
			}
			if err := c.Delete(ctx, page[i].Key); err == nil {
				removed++
			} else if !errors.Is(err, ErrNotFound) {
				return removed, err
			}
		}
	}
	return removed, nil
}

// lists reports whether the chunk's key has the manifest that lists it.
func (c *Client) lists(ctx context.Context, chunk *circle.Chunk) (bool, error) {
	i, err := c.getItem(ctx, chunk.Key)
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			err = nil
		}
		return false, err
	}
	var m protocol.Manifest
	return i.flags&protocol.ItemManifest != 0 && m.Parse(i.Value) == nil && m.ID == chunk.ID, nil
}
