package shard

import (
	"errors"
	"fmt"
	"math"

	"flashdbm/servers/arena"
	"flashdbm/servers/guard"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/store"
)

// A copy of a shard begins with a header: the base of versions, and those answers of all clients that are entries, as
// of the entry after which the log supplies everything. Then come pieces: the items of a range of hashes, as of that
// entry or later.
//
//	header:  base u64 | clients u64 | for each: id, low, floor, answers u64 | for each answer: number, seq,
//	         version, sum, 0 u64
//	piece:   for each item: size of the key u32 | of the value u32 | flags u16 | 0 u16 | 0 u32 | version, expiry
//	         u64 | key | value
const (
	copyItemHead = 32
	copyMost     = 4 << 20 // bytes of a piece with several items; a single item is little longer
	answerSize   = 40
	clientSize   = 32
)

// Header implements replica.Source.
func (m *source) Header() []byte {
	b := le.AppendUint64(nil, m.base)
	b = le.AppendUint64(b, uint64(len(m.clients)))
	for id, cl := range m.clients {
		b = le.AppendUint64(le.AppendUint64(b, id), cl.low)
		b = le.AppendUint64(b, cl.floor)
		count := len(b)
		b = le.AppendUint64(b, 0)
		for n, o := range cl.outcomes {
			if !o.logged {
				continue
			}
			for _, w := range [...]uint64{n, o.seq, o.body.Version, uint64(o.body.Sum), 0} {
				b = le.AppendUint64(b, w)
			}
			le.PutUint64(b[count:], le.Uint64(b[count:])+1)
		}
	}
	return b
}

var errHeader = fmt.Errorf("shard: the head of a copy is cut off")

func (s *Shard) takeHeader(seq uint64, b []byte) error {
	word := func() (w uint64) {
		if len(b) >= 8 {
			w, b = le.Uint64(b), b[8:]
		}
		return w
	}
	if len(b) < 16 {
		return errHeader
	}
	s.setBase(word())
	s.start, s.settles = seq, seq
	for range word() {
		if len(b) < clientSize {
			return errHeader
		}
		id, low, floor, n := word(), word(), word(), word()
		if uint64(len(b)) < answerSize*min(n, math.MaxUint32) {
			return errHeader
		}
		cl := s.clients[id]
		if cl == nil {
			cl = &client{id: id, left: s.now}
			s.clients[id] = cl
		}
		cl.low, cl.floor, cl.high, cl.outcomes = low, floor, 0, map[uint64]outcome{}
		for range n {
			number, o := word(), outcome{seq: word(), logged: true, body: protocol.Written{Version: word(), Sum: int64(word())}}
			cl.high = max(cl.high, number)
			if word() == 0 { // earlier versions had a status here, and sent refusals too
				cl.outcomes[number] = o
			}
		}
	}
	return nil
}

func appendCopied(b []byte, it *guard.Item) []byte {
	b = le.AppendUint32(le.AppendUint32(b, uint32(len(it.Key))), uint32(len(it.Value)))
	b = le.AppendUint64(b, uint64(it.Flags))
	b = le.AppendUint64(le.AppendUint64(b, it.Version), it.Expiry)
	return append(append(b, it.Key...), it.Value...)
}

// Piece implements replica.Source. It takes the piece from the table if that is complete, else from the file, once
// the file has entry behind.
func (m *source) Piece(name string, behind, from uint64) (body []byte, next uint64, last, ok bool) {
	s := (*Shard)(m)
	p := s.pieces[name]
	switch {
	case p == nil && s.complete:
		for {
			list, covered := s.chain(from, math.MaxUint64)
			for i := range list {
				if cut(body, list, i) {
					return body, list[i].hash, false, true
				}
				body = appendCopied(body, &list[i].Item)
			}
			if covered == math.MaxUint64 {
				return body, 0, true, true
			}
			from = covered + 1
		}
	case p == nil && s.o.Store.Applied() >= behind:
		s.ids++
		s.pieces[name] = &copyPiece{id: s.ids}
		s.o.Store.Load(s.ids, from, math.MaxUint64, copyBytes)
		return nil, 0, false, false
	case p == nil || p.came == nil:
		return nil, 0, false, false
	}
	delete(s.pieces, name)
	var list []hashed
	for i := range p.came.Records {
		r := &p.came.Records[i]
		list = append(list, hashed{p.came.Hashes[i], guard.Item{Flags: r.Flags, Version: r.Version, Expiry: r.Expiry, Key: r.Key, Value: r.Value}})
		if cut(body, list, i) {
			return body, list[i].hash, false, true
		}
		body = appendCopied(body, &list[i].Item)
	}
	return body, p.came.Last + 1, p.came.Last == math.MaxUint64, true
}

// cut reports whether item i begins another piece: it has another hash than the item before it, and this piece is
// long enough, or would become too long.
func cut(body []byte, list []hashed, i int) bool {
	it := &list[i]
	much := len(body) >= copyBytes || len(body)+copyItemHead+len(it.Key)+len(it.Value) > copyMost
	return much && len(body) > 0 && (i == 0 || list[i-1].hash != it.hash)
}

// pieceForCopy takes a piece of the file that Piece has requested.
func (s *Shard) pieceForCopy(p *store.Piece) bool {
	for _, c := range s.pieces {
		if c.id == p.ID {
			c.came = p
			return true
		}
	}
	return false
}

// ForgetPieces implements replica.Source.
func (m *source) ForgetPieces(name string) { delete(m.pieces, name) }

// Mark implements replica.Source.
func (m *source) Mark() uint64 {
	s := (*Shard)(m)
	return s.appendNothing(&change{kind: changeNothing})
}

// Synced implements replica.Source.
func (m *source) Synced() uint64 { return (*merged)(m).Synced() }

// Applied implements replica.Source.
func (m *source) Applied() uint64 {
	if m.o.Store == nil {
		return m.seq
	}
	return m.o.Store.Applied()
}

// Piece implements replica.State.
func (m *merged) Piece(b []byte) bool {
	s := (*Shard)(m)
	err := s.takePiece(b)
	switch {
	case errors.Is(err, arena.ErrFull):
		return s.noRoom()
	case err != nil:
		s.stepDown(err)
		return false
	}
	s.stuck = 0
	return true
}

// takePiece installs the items of a piece, except keys that an entry has changed since the
// copy began.
func (s *Shard) takePiece(b []byte) error {
	for len(b) > 0 {
		it, _, rest, err := cutCopied(b)
		if err != nil {
			return err
		}
		if err := s.takeCopied(&it); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// cutCopied decodes the first item of a piece, and returns the bytes after it.
func cutCopied(b []byte) (it guard.Item, flags uint64, rest []byte, err error) {
	if len(b) < copyItemHead || uint64(len(b)-copyItemHead) < uint64(le.Uint32(b))+uint64(le.Uint32(b[4:])) {
		return it, 0, nil, fmt.Errorf("shard: a piece of a copy is cut off")
	}
	k, v := int(le.Uint32(b)), int(le.Uint32(b[4:]))
	flags = le.Uint64(b[8:])
	it = guard.Item{
		Flags: uint16(flags), Version: le.Uint64(b[16:]), Expiry: le.Uint64(b[24:]), Key: b[copyItemHead:][:k:k], Value: b[copyItemHead+k:][:v:v],
	}
	return it, flags, b[copyItemHead+k+v:], nil
}

func (s *Shard) takeCopied(it *guard.Item) error {
	h := s.hash(it.Key)
	if _, newer := s.changedKeys[string(it.Key)]; newer || s.wasDropped(h, 0) {
		return nil
	}
	if old, ok := s.table.Find(h, it.Key); ok && s.item(arena.Place(old)).Version >= it.Version {
		return nil // of a piece that has been installed in part before
	}
	n := guard.Size(len(it.Key), len(it.Value))
	p, err := s.arena.Alloc(n)
	if err != nil && (s.o.Store == nil || s.o.Store.Backlog() > maxBacklog) {
		return err
	}
	if s.o.Store != nil {
		s.o.Store.Append(store.Entry{Seq: s.seq, Hash: h, Record: store.Record{
			Version: it.Version, Expiry: it.Expiry, Flags: it.Flags, Key: it.Key, Value: it.Value,
		}})
	}
	if err != nil { // the file has the item, where requests find it
		s.complete, s.evicted = false, true
		return nil
	}
	s.show(&entry{seq: s.seq, hash: h, place: p, guardian: guard.Build(s.arena.Bytes(p)[:n], it)})
	return nil
}
