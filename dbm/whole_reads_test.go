package dbm

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing/iotest"
)

func (w *wholeWorld) stepRead(x *wholeTx, h *Tx, space int) error {
	k := wholeAnyKey(w.rng)
	r, found := x.look(space, k)
	if err := x.state.seesKey(h, space, k); err != nil {
		return err
	}
	reader, n, err := h.ValueReader(k)
	if !found {
		if err != ErrNotFound {
			return fmt.Errorf("value reader of an absent key: %v", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer reader.Close()
	all, err := io.ReadAll(iotest.OneByteReader(io.LimitReader(reader, 1000)))
	if err == nil {
		var rest []byte
		rest, err = io.ReadAll(reader)
		all = append(all, rest...)
	}
	if err != nil || n != int64(len(r.value)) || string(all) != r.value {
		return fmt.Errorf("value reader of %.60q: length %d, %s, %v", k, n, briefly(string(all)), err)
	}
	return nil
}

func (w *wholeWorld) stepIterate(x *wholeTx, h *Tx, space int) error {
	from, to := w.bounds()
	table := x.state.tables[space]
	keys := keysIn(table, from, to)
	most := 1 + w.rng.IntN(1000)
	check := func(i int, want string, k, v []byte) error {
		if string(k) != want || v != nil && string(v) != table[want].value {
			return fmt.Errorf("record %d from %.60q to %.60q: %.60q, %s; want %.60q", i, from, to, k, briefly(string(v)), want)
		}
		return nil
	}
	i, what := 0, w.rng.IntN(4)
	x.read = x.read || len(keys) > 0 // in an empty range nothing may have been read
	switch what {
	case 0:
		for k, v := range h.Range(from, to) {
			if i == len(keys) {
				return fmt.Errorf("range goes on at %.60q", k)
			}
			if err := check(i, keys[i], k, v); err != nil {
				return err
			}
			if i++; i == most {
				return nil
			}
		}
	case 1:
		for k, v := range h.Backward(from, to) {
			if i == len(keys) {
				return fmt.Errorf("backward goes on at %.60q", k)
			}
			if err := check(i, keys[len(keys)-1-i], k, v); err != nil {
				return err
			}
			if i++; i == most {
				return nil
			}
		}
	case 2:
		for k := range h.Keys(from, to) {
			if i == len(keys) {
				return fmt.Errorf("keys go on at %.60q", k)
			}
			if err := check(i, keys[i], k, nil); err != nil {
				return err
			}
			if i++; i == most {
				return nil
			}
		}
	case 3:
		p := from[:min(len(from), w.rng.IntN(3))]
		keys = keysIn(table, p, PrefixEnd(p))
		for k, v := range h.Prefix(p) {
			if i == len(keys) {
				return fmt.Errorf("prefix goes on at %.60q", k)
			}
			if err := check(i, keys[i], k, v); err != nil {
				return err
			}
			i++
		}
	}
	if h.Err() != nil || i != len(keys) {
		return fmt.Errorf("iteration %d from %.60q to %.60q: %d records, want %d: %w", what, from, to, i, len(keys), h.Err())
	}
	return nil
}

// stepCursor moves a cursor, and writes between its moves.
func (w *wholeWorld) stepCursor(x *wholeTx, h *Tx, space int) error {
	c := h.Cursor()
	const fresh, at, after, before = 0, 1, 2, 3
	where, pos := fresh, ""
	for range w.rng.IntN(20) {
		keys := keysIn(x.state.tables[space], nil, nil)
		i := -1 // index of the record that the move must find
		var moved bool
		move := w.rng.IntN(8)
		switch move {
		case 0:
			moved = c.First()
			i, where = 0, before
			if len(keys) == 0 {
				where = after
			}
		case 1:
			moved = c.Last()
			i, where = len(keys)-1, before
		case 2:
			key := wholeAnyKey(w.rng)
			moved = c.Seek(key)
			i, _ = slices.BinarySearch(keys, string(key))
			where = after
		case 3, 4:
			moved = c.Next()
			switch where {
			case fresh, before:
				i = 0
			case at:
				var found bool
				if i, found = slices.BinarySearch(keys, pos); found {
					i++
				}
			case after:
				i = len(keys)
			}
			where = after
		case 5:
			moved = c.Prev()
			switch where {
			case fresh, after:
				i = len(keys) - 1
			case at:
				i, _ = slices.BinarySearch(keys, pos)
				i--
			}
			where = before
		case 6:
			if where != at {
				continue
			}
			_, found := x.state.tables[space][pos]
			if err := c.Delete(); found != (err == nil) {
				if err == nil || !errors.Is(err, ErrNotFound) {
					return fmt.Errorf("cursor's delete of %.60q, found %v: %w", pos, found, err)
				}
			}
			if found {
				x.remove(space, pos)
			}
			continue
		case 7:
			if err := w.stepPut(x, h, space); err != nil {
				return err
			}
			continue
		}
		x.read = true
		if want := i >= 0 && i < len(keys); moved != want {
			return fmt.Errorf("cursor's move %d: %v, want %v (%d of %d): %w", move, moved, want, i, len(keys), c.Err())
		}
		if moved {
			where, pos = at, keys[i]
			if string(c.Key()) != pos || string(c.Value()) != x.state.tables[space][pos].value || c.Value() == nil {
				return fmt.Errorf("cursor's move %d: %.60q, %s, want %.60q", move, c.Key(), briefly(string(c.Value())), pos)
			}
			if _, expires, err := c.TTL(); err != nil || expires != (x.state.tables[space][pos].life != forever) {
				return fmt.Errorf("cursor's TTL of %.60q: %v, %w", pos, expires, err)
			}
		} else if c.Key() != nil || c.Value() != nil {
			return fmt.Errorf("cursor on no record: %q", c.Key())
		}
	}
	return c.Err()
}

// stepCatalog creates, drops or renames a keyspace, or asks for one that does not exist.
func (w *wholeWorld) stepCatalog(x *wholeTx) error {
	name, to := string('a'+byte(w.rng.IntN(5))), string('a'+byte(w.rng.IntN(5)))
	id, found := x.state.names[name]
	key := wholeKey{catalogSpace, name}
	what := w.rng.IntN(4)
	w.log("  catalog %d %s %s", what, name, to)
	switch what {
	case 0:
		h, err := x.tx.Keyspace(name)
		if found != (err == nil) || !found && !errors.Is(err, ErrNoKeyspace) {
			return fmt.Errorf("keyspace %q, found %v: %w", name, found, err)
		}
		if found {
			x.handles[id] = h
		}
		return nil
	case 1:
		h, err := x.tx.CreateKeyspace(name)
		if found {
			if !errors.Is(err, ErrExists) {
				return fmt.Errorf("create %q: %w, want ErrExists", name, err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		w.numbers++
		x.did.created = true
		x.state.names[name], x.state.tables[w.numbers] = w.numbers, map[string]wholeRecord{}
		x.handles[w.numbers] = h
	case 2:
		err := x.tx.DropKeyspace(name)
		if !found {
			if !errors.Is(err, ErrNoKeyspace) {
				return fmt.Errorf("drop %q: %w, want ErrNoKeyspace", name, err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		delete(x.state.names, name)
		delete(x.handles, id)
		x.did.removed[id] = true
	case 3:
		_, taken := x.state.names[to]
		err := x.tx.RenameKeyspace(name, to)
		if !found || taken {
			if !(!found && errors.Is(err, ErrNoKeyspace) || taken && errors.Is(err, ErrExists)) {
				return fmt.Errorf("rename %q to %q: %w", name, to, err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		delete(x.state.names, name)
		x.state.names[to] = id
		x.did.removed[id] = true
		k := wholeKey{catalogSpace, to}
		x.did.changed[k], x.did.touched[k] = true, true
	}
	x.did.changed[key], x.did.touched[key], x.writes = true, true, true
	return nil
}
