package dbm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"testing/iotest"
	"time"
)

// steps are what a transaction of TestWholeModel does with the records of one keyspace.
var wholeSteps = []func(*wholeWorld, *wholeTx, *Tx, int) error{
	(*wholeWorld).stepPut, (*wholeWorld).stepPut, (*wholeWorld).stepPut, (*wholeWorld).stepPut, (*wholeWorld).stepPutTTL,
	(*wholeWorld).stepDelete, (*wholeWorld).stepDelete, (*wholeWorld).stepDeleteRange, (*wholeWorld).stepInsert,
	(*wholeWorld).stepIncrement, (*wholeWorld).stepAppend, (*wholeWorld).stepSwap, (*wholeWorld).stepGetAndPut,
	(*wholeWorld).stepPutReader, (*wholeWorld).stepRead, (*wholeWorld).stepRead, (*wholeWorld).stepIterate,
	(*wholeWorld).stepCursor, (*wholeWorld).stepMany,
}

// step makes one step in the transaction.
func (w *wholeWorld) step(x *wholeTx) error {
	if x.spaces && w.rng.IntN(6) == 0 {
		return w.stepCatalog(x)
	}
	h, space := x.tx, 0
	if names := slices.Sorted(maps.Keys(x.state.names)); len(names) > 0 && w.rng.IntN(2) == 0 {
		name := names[w.rng.IntN(len(names))]
		space = x.state.names[name]
		if h = x.handles[space]; h == nil || w.rng.IntN(2) == 0 {
			var err error
			if h, err = x.tx.Keyspace(name); err != nil {
				return err
			}
			x.handles[space] = h
		}
	}
	i := w.rng.IntN(len(wholeSteps))
	w.log("  step %d in %d", i, space)
	return wholeSteps[i](w, x, h, space)
}

func (w *wholeWorld) stepPut(x *wholeTx, h *Tx, space int) error {
	k, v := wholeAnyKey(w.rng), wholeValue(w.rng)
	if w.rng.IntN(3) == 0 {
		v = strconv.AppendInt(nil, int64(w.rng.IntN(1000)), 10)
	}
	if err := h.Put(k, v); err != nil {
		return err
	}
	x.put(space, string(k), wholeRecord{value: string(v)})
	return nil
}

func (w *wholeWorld) stepPutTTL(x *wholeTx, h *Tx, space int) error {
	k, v := wholeAnyKey(w.rng), wholeValue(w.rng)
	if len(k) > 65000 {
		k = k[:65000]
	}
	life, ttl := hour, time.Hour
	if w.rng.IntN(3) == 0 {
		life, ttl = instant, time.Duration(1+w.rng.IntN(int(time.Millisecond)))
	}
	err := h.PutTTL(k, v, ttl)
	if !x.times {
		if err != ErrNoExpiry {
			return fmt.Errorf("PutTTL: %v, want ErrNoExpiry", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	x.put(space, string(k), wholeRecord{string(v), life})
	return nil
}

func (w *wholeWorld) stepDelete(x *wholeTx, h *Tx, space int) error {
	k := wholeAnyKey(w.rng)
	if err := h.Delete(k); err != nil {
		return err
	}
	x.remove(space, string(k))
	return nil
}

// bounds draws the ends of a range; nil is an open end.
func (w *wholeWorld) bounds() (from, to []byte) {
	if w.rng.IntN(5) > 0 {
		from = append([]byte{}, wholeAnyKey(w.rng)...)
	}
	if w.rng.IntN(5) > 0 {
		to = append([]byte{}, wholeAnyKey(w.rng)...)
	}
	if w.rng.IntN(4) > 0 && to != nil && bytes.Compare(from, to) > 0 {
		from, to = to, from
	}
	return from, to
}

func (w *wholeWorld) stepDeleteRange(x *wholeTx, h *Tx, space int) error {
	from, to := w.bounds()
	if w.rng.IntN(2) == 0 && to == nil {
		to = []byte("z")
	}
	if err := h.DeleteRange(from, to); err != nil {
		return err
	}
	for _, k := range keysIn(x.state.tables[space], from, to) {
		x.remove(space, k)
	}
	x.did.ranges = append(x.did.ranges, wholeRange{space, from, to})
	x.read = x.read || to == nil || string(from) < string(to)
	return nil
}

// look returns the record of a key that the transaction reads.
func (x *wholeTx) look(space int, key []byte) (r wholeRecord, found bool) {
	x.read = true
	k := wholeKey{space, string(key)}
	if !x.did.touched[k] {
		x.reads[k] = true
	}
	r, found = x.state.tables[space][string(key)]
	return r, found
}

func (w *wholeWorld) stepInsert(x *wholeTx, h *Tx, space int) error {
	k, v := wholeAnyKey(w.rng), wholeValue(w.rng)
	_, found := x.look(space, k)
	err := h.Insert(k, v)
	if found {
		if !errors.Is(err, ErrExists) {
			return fmt.Errorf("insert of %.60q: %w, want ErrExists", k, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	x.put(space, string(k), wholeRecord{value: string(v)})
	return nil
}

func (w *wholeWorld) stepIncrement(x *wholeTx, h *Tx, space int) error {
	k := fmt.Appendf(nil, "n%d", w.rng.IntN(8))
	if w.rng.IntN(4) == 0 {
		k = wholeAnyKey(w.rng)
	}
	by := []int64{0, 1, -1, 7, 1 << 62, -1 << 63, 1<<63 - 1}[w.rng.IntN(7)]
	r, found := x.look(space, k)
	old, want := int64(0), error(nil)
	if found {
		var err error
		if old, err = strconv.ParseInt(r.value, 10, 64); err != nil || strconv.FormatInt(old, 10) != r.value {
			want = ErrNotNumber
		}
	}
	sum := old + by
	if want == nil && (by > 0) != (sum > old) && by != 0 {
		want = ErrOverflow
	}
	n, err := h.Increment(k, by)
	if want != nil {
		if !errors.Is(err, want) {
			return fmt.Errorf("increment of %.60q by %d: %w, want %v", r.value, by, err, want)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if n != sum {
		return fmt.Errorf("increment of %q by %d: %d", r.value, by, n)
	}
	r.value = strconv.FormatInt(sum, 10)
	x.put(space, string(k), r)
	return nil
}

func (w *wholeWorld) stepAppend(x *wholeTx, h *Tx, space int) error {
	k, v := wholeAnyKey(w.rng), wholeValue(w.rng)
	r, _ := x.look(space, k)
	if len(r.value)+len(v) > 8<<20 {
		return nil
	}
	if err := h.Append(k, v); err != nil {
		return err
	}
	r.value += string(v)
	x.put(space, string(k), r)
	return nil
}

func (w *wholeWorld) stepSwap(x *wholeTx, h *Tx, space int) error {
	k, v := wholeAnyKey(w.rng), wholeValue(w.rng)
	r, found := x.look(space, k)
	var old []byte
	if found {
		old = []byte(r.value)
	}
	same := true
	if w.rng.IntN(3) == 0 {
		old = wholeValue(w.rng)
		same = found && string(old) == r.value
	}
	swapped, err := h.CompareAndSwap(k, old, v)
	if err != nil {
		return err
	}
	if swapped != same {
		return fmt.Errorf("swap of %.60q: %v", k, swapped)
	}
	if swapped {
		x.put(space, string(k), wholeRecord{value: string(v)})
	}
	return nil
}

func (w *wholeWorld) stepGetAndPut(x *wholeTx, h *Tx, space int) error {
	k, v := wholeAnyKey(w.rng), wholeValue(w.rng)
	r, found := x.look(space, k)
	old, err := h.GetAndPut(k, v)
	if err != nil {
		return err
	}
	if (old != nil) != found || string(old) != r.value {
		return fmt.Errorf("GetAndPut of %.60q: %s", k, briefly(string(old)))
	}
	x.put(space, string(k), wholeRecord{value: string(v)})
	return nil
}

func (w *wholeWorld) stepPutReader(x *wholeTx, h *Tx, space int) error {
	k, v := wholeAnyKey(w.rng), wholeValue(w.rng)
	var r io.Reader = bytes.NewReader(v)
	if w.rng.IntN(2) == 0 {
		r = iotest.HalfReader(r)
	}
	size := int64(len(v))
	switch w.rng.IntN(5) {
	case 0:
		size = UnknownSize
	case 1:
		if err := h.PutReader(k, r, size+1); !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		return nil
	case 2:
		broken := errors.New("broken")
		if err := h.PutReader(k, io.MultiReader(r, iotest.ErrReader(broken)), UnknownSize); err != broken {
			return err
		}
		return nil
	}
	if err := h.PutReader(k, r, size); err != nil {
		return err
	}
	x.put(space, string(k), wholeRecord{value: string(v)})
	return nil
}

func (w *wholeWorld) stepMany(x *wholeTx, h *Tx, space int) error {
	if w.rng.IntN(4) > 0 {
		return nil
	}
	from, n := w.rng.IntN(2000), w.rng.IntN(600)
	for i := from; i < from+n; i++ {
		k, v := fmt.Appendf(nil, "%05d", i), wholeText[i%500:i%500+w.rng.IntN(150)]
		if x.times && w.rng.IntN(4) == 0 {
			if err := h.PutTTL(k, []byte(v), time.Hour); err != nil {
				return err
			}
			x.put(space, string(k), wholeRecord{v, hour})
			continue
		}
		if err := h.Put(k, []byte(v)); err != nil {
			return err
		}
		x.put(space, string(k), wholeRecord{value: v})
	}
	return nil
}
