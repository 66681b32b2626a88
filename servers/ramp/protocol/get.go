package protocol

import (
	"bytes"
	"fmt"
	"slices"
)

// A Get requests versions of keys of one partition.
type Get struct {
	// Among selects, for each key without a timestamp of its own, the newest version that one of these transactions
	// wrote; empty: the newest committed version. Timestamps alone are not enough: clients may have the same number,
	// so a version with the same timestamp may belong to another transaction, which may be aborted later.
	Among []Transaction
	Keys  []Wanted
}

// A Wanted is a key and the timestamp of the wanted version, committed or prepared; 0: see Get.Among.
type Wanted struct {
	TS  Timestamp
	Key []byte
}

const (
	getHead    = 8
	wantedHead = 12
)

// Size returns the number of bytes that AppendBody appends.
func (g *Get) Size() int {
	n := getHead + TransactionSize*len(g.Among)
	for i := range g.Keys {
		n += wantedHead + len(g.Keys[i].Key)
	}
	return n
}

// AppendBody appends the request's body.
func (g *Get) AppendBody(b []byte) []byte {
	b = le.AppendUint32(b, uint32(len(g.Among)))
	b = le.AppendUint32(b, uint32(len(g.Keys)))
	for i := range g.Among {
		b = g.Among[i].AppendBody(b)
	}
	for i := range g.Keys {
		b = le.AppendUint64(b, uint64(g.Keys[i].TS))
		b = le.AppendUint32(b, uint32(len(g.Keys[i].Key)))
		b = append(b, g.Keys[i].Key...)
	}
	return b
}

// Parse decodes the body. It reuses the slices of g; keys are parts of the body.
func (g *Get) Parse(b []byte) error {
	bad := func(what string) error { return fmt.Errorf("%w: GET of %d bytes: %s", ErrMalformed, len(b), what) }
	if len(b) < getHead {
		return bad("its head is cut off")
	}
	among, keys := le.Uint32(b), le.Uint32(b[4:])
	if among > MaxKeys || keys == 0 || keys > MaxKeys || len(b) < getHead+TransactionSize*int(among) {
		return bad(fmt.Sprintf("%d transactions, %d keys", among, keys))
	}
	g.Among, g.Keys = g.Among[:0], g.Keys[:0]
	r := b[getHead:]
	for range among {
		var t Transaction
		if err := t.Parse(r[:TransactionSize]); err != nil {
			return err
		}
		g.Among = append(g.Among, t)
		r = r[TransactionSize:]
	}
	for range keys {
		if len(r) < wantedHead || le.Uint32(r[8:]) > MaxKey || len(r) < wantedHead+int(le.Uint32(r[8:])) {
			return bad("a key is cut off")
		}
		end := wantedHead + int(le.Uint32(r[8:]))
		g.Keys = append(g.Keys, Wanted{Timestamp(le.Uint64(r)), r[wantedHead:end:end]})
		r = r[end:]
	}
	if len(r) > 0 {
		return bad("more than its keys")
	}
	return nil
}

// Clone returns a copy that shares no memory with g.
func (g *Get) Clone() *Get {
	c := &Get{Among: slices.Clone(g.Among), Keys: slices.Clone(g.Keys)}
	for i := range c.Keys {
		c.Keys[i].Key = bytes.Clone(c.Keys[i].Key)
	}
	return c
}

// State is the state of a key or a version in a partition's answer.
type State uint8

// The states.
const (
	StateAbsent  State = 0 // the version says that the key has no value
	StateFound   State = 1 // the version has a value
	StateNever   State = 2 // no such version exists, and never did with a timestamp above TS; a remove up to TS may be forgotten
	StateGone    State = 3 // the version may have existed and been forgotten: the transaction has to start again
	StateOmitted State = 4 // the answer had no room for the value: request the key alone
)

// A Version is the part of one key in the answer to a GET.
type Version struct {
	State   State
	TS      Timestamp
	Content []byte // of the item, as in Meta.AppendContent; empty without a version, or if only timestamps were requested
	Slot    Slot   // Length 0: none
}

// A Slot is the place at which a client may Read the newest committed version of a key.
type Slot struct {
	Offset uint64
	Extent uint32
	Length uint32
}

// Got is the answer to a GET and to a LOCK.
type Got struct {
	Term     uint64 // of the partition's life
	Tenure   uint32 // microseconds, from when the request was sent, for which Reads of this life's slots are valid
	Versions []Version
}

const (
	gotHead     = 16
	versionHead = 32
	// VersionRoom is the most bytes of a version in an answer besides its content.
	VersionRoom = versionHead
)

// AppendHead appends the head of the answer; that many versions follow.
func (g *Got) AppendHead(b []byte, versions int) []byte {
	b = le.AppendUint64(b, g.Term)
	b = le.AppendUint32(b, g.Tenure)
	return le.AppendUint32(b, uint32(versions))
}

// AppendBody appends the answer's body.
func (g *Got) AppendBody(b []byte) []byte {
	b = g.AppendHead(b, len(g.Versions))
	for i := range g.Versions {
		b = g.Versions[i].Append(b)
	}
	return b
}

// Append appends the version.
func (v *Version) Append(b []byte) []byte {
	b = append(b, byte(v.State), 0, 0, 0)
	b = le.AppendUint32(b, uint32(len(v.Content)))
	b = le.AppendUint64(b, uint64(v.TS))
	b = le.AppendUint64(b, v.Slot.Offset)
	b = le.AppendUint32(b, v.Slot.Extent)
	b = le.AppendUint32(b, v.Slot.Length)
	return append(b, v.Content...)
}

// Parse decodes the answer to a request for that many keys. It reuses the slice of g; contents are parts of the body.
func (g *Got) Parse(b []byte, keys int) error {
	bad := func(what string) error {
		return fmt.Errorf("%w: an answer of %d bytes to GET: %s", ErrMalformed, len(b), what)
	}
	if len(b) < gotHead || int64(le.Uint32(b[12:])) != int64(keys) {
		return bad("its head is wrong")
	}
	g.Term, g.Tenure = le.Uint64(b), le.Uint32(b[8:])
	g.Versions = g.Versions[:0]
	r := b[gotHead:]
	for range keys {
		if len(r) < versionHead || r[0] > byte(StateOmitted) || int64(len(r)) < versionHead+int64(le.Uint32(r[4:])) {
			return bad("a version is cut off")
		}
		end := versionHead + int(le.Uint32(r[4:]))
		g.Versions = append(g.Versions, Version{
			State: State(r[0]), TS: Timestamp(le.Uint64(r[8:])), Content: r[versionHead:end:end],
			Slot: Slot{Offset: le.Uint64(r[16:]), Extent: le.Uint32(r[24:]), Length: le.Uint32(r[28:])},
		})
		r = r[end:]
	}
	if len(r) > 0 {
		return bad("more than its versions")
	}
	return nil
}

// An Extent is the body of the answer to EXTENT; the body of the request is just the extent's number.
type Extent struct {
	Term uint64
	Key  [5]uint64 // ID, Rkey, Nonce, Base, Len
}

const extentSize = 48

// AppendBody appends the answer's body.
func (e *Extent) AppendBody(b []byte) []byte {
	b = le.AppendUint64(b, e.Term)
	for _, w := range e.Key {
		b = le.AppendUint64(b, w)
	}
	return b
}

// Parse decodes the answer's body.
func (e *Extent) Parse(b []byte) error {
	if len(b) != extentSize {
		return fmt.Errorf("%w: an answer of %d bytes to EXTENT", ErrMalformed, len(b))
	}
	e.Term = le.Uint64(b)
	for i := range e.Key {
		e.Key[i] = le.Uint64(b[8+8*i:])
	}
	return nil
}

// AppendExtentRequest appends the body of an EXTENT request.
func AppendExtentRequest(b []byte, number uint32) []byte { return le.AppendUint32(b, number) }

// ParseExtentRequest decodes the body of an EXTENT request.
func ParseExtentRequest(b []byte) (uint32, error) {
	if len(b) != 4 {
		return 0, fmt.Errorf("%w: EXTENT of %d bytes", ErrMalformed, len(b))
	}
	return le.Uint32(b), nil
}

// A Lock requests locks of keys, in the order given, for a transaction of two-phase locking. The answer is that of a
// GET.
type Lock struct {
	Transaction // a lower timestamp is an older transaction
	Keys        [][]byte
}

// Size returns the number of bytes that AppendBody appends.
func (l *Lock) Size() int {
	n := TransactionSize + 4
	for _, k := range l.Keys {
		n += 4 + len(k)
	}
	return n
}

// AppendBody appends the request's body.
func (l *Lock) AppendBody(b []byte) []byte {
	b = l.Transaction.AppendBody(b)
	b = le.AppendUint32(b, uint32(len(l.Keys)))
	for _, k := range l.Keys {
		b = le.AppendUint32(b, uint32(len(k)))
		b = append(b, k...)
	}
	return b
}

// Parse decodes the body. Keys are parts of it.
func (l *Lock) Parse(b []byte) error {
	if len(b) < TransactionSize+4 {
		return fmt.Errorf("%w: LOCK of %d bytes", ErrMalformed, len(b))
	}
	if err := l.Transaction.Parse(b[:TransactionSize]); err != nil {
		return err
	}
	n := le.Uint32(b[TransactionSize:])
	if n == 0 || n > MaxKeys {
		return fmt.Errorf("%w: LOCK of %d keys", ErrMalformed, n)
	}
	r := b[TransactionSize+4:]
	l.Keys = l.Keys[:0]
	for range n {
		if len(r) < 4 || le.Uint32(r) > MaxKey || len(r) < 4+int(le.Uint32(r)) {
			return fmt.Errorf("%w: LOCK of %d bytes: a key is cut off", ErrMalformed, len(b))
		}
		end := 4 + int(le.Uint32(r))
		l.Keys = append(l.Keys, r[4:end:end])
		r = r[end:]
	}
	if len(r) > 0 {
		return fmt.Errorf("%w: LOCK of %d bytes: more than its keys", ErrMalformed, len(b))
	}
	return nil
}
