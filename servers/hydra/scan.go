package hydra

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/hydra/protocol"
)

// ScanOptions configure a scan; nil stands for the zero value.
type ScanOptions struct {
	KeysOnly bool // without values
	Limit    int  // about the most items of a page; 0: the shards' default
}

// Entry is a key and its item.
type Entry struct {
	Key []byte
	Item
}

// Scan yields all items, in no particular order. An item that exists during the whole scan is yielded once; an item
// that is written, removed or moved during the scan is yielded once or not at all. The sequence ends after the first
// error. The caller owns keys and values.
func (c *Client) Scan(ctx context.Context, o *ScanOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for cursor, more := uint64(0), true; more; {
			var page []Entry
			var err error
			if page, cursor, more, err = c.scanPage(ctx, cursor, o); err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range page {
				there, err := c.scanned(ctx, &e, o)
				if there && !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// ScanPage returns some items from a cursor on, 0 at first, and the cursor of the next page while more is true. A
// page may be empty. A cursor is a place in the space of hashes: it stays valid when shards move or restart, and
// for other clients. All values of the page are in memory at once, including those above MaxValue.
func (c *Client) ScanPage(ctx context.Context, cursor uint64, o *ScanOptions) (page []Entry, next uint64, more bool, err error) {
	all, next, more, err := c.scanPage(ctx, cursor, o)
	page = all[:0]
	for i := range all {
		there, err := c.scanned(ctx, &all[i], o)
		if err != nil {
			return nil, 0, false, err
		}
		if there {
			page = append(page, all[i])
		}
	}
	return page, next, more, err
}

// scanned gives an entry of scanPage its value. there is false if the entry is not for users: a chunk, or a value in
// chunks that has been removed meanwhile.
func (c *Client) scanned(ctx context.Context, e *Entry, o *ScanOptions) (there bool, err error) {
	switch {
	case e.flags&protocol.ItemChunk != 0:
		return false, nil
	case e.flags&protocol.ItemManifest == 0 || o != nil && o.KeysOnly:
		return true, nil
	}
	e.Item, err = c.whole(ctx, e.Key, nil, e.Item)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return true, err
}

// scanPage returns a page of all items, including chunks and manifests.
func (c *Client) scanPage(ctx context.Context, cursor uint64, o *ScanOptions) (page []Entry, next uint64, more bool, err error) {
	if o == nil {
		o = &ScanOptions{}
	}
	x := c.get(protocol.OpScan, nil)
	defer c.put(x)
	if o.KeysOnly {
		x.flags = protocol.FlagKeysOnly
	}
	last := c.rangeEnd(cursor)
	s := protocol.Scan{First: cursor, Last: last, Items: uint32(max(o.Limit, 0))}
	x.hash, x.body = cursor, s.AppendBody(nil)
	c.run(ctx, &x.w, x.list[:])
	if x.err != nil {
		return nil, 0, false, x.err
	}
	next, n, err := protocol.CheckScan(x.out)
	if err != nil {
		return nil, 0, false, err
	}
	page = make([]Entry, 0, n)
	for it := range protocol.ScannedItems(x.out) {
		e := Entry{bytes.Clone(it.Key), Item{Value: bytes.Clone(it.Value), Version: it.Version, flags: it.ItemFlags}}
		if it.Expiry != 0 {
			e.Expiry = time.UnixMilli(int64(it.Expiry))
		}
		page = append(page, e)
	}
	if x.outFlags&protocol.FlagMore != 0 {
		if next <= cursor {
			return nil, 0, false, protocol.ErrMalformed
		}
		return page, next, true, nil
	}
	return page, last + 1, last+1 != 0, nil
}

// rangeEnd returns the last hash of the circle's range that contains hash.
func (c *Client) rangeEnd(hash uint64) uint64 {
	got := make(chan *circle.Circle, 1)
	c.do(func(e *engine) { got <- e.circle })
	at := <-got
	owner, _ := at.Owner(hash)
	for _, r := range at.Ranges(owner) {
		if r.First <= hash && hash <= r.Last {
			return r.Last
		}
	}
	return hash
}
