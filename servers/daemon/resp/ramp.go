package resp

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"flashdbm/servers/hydra"
	"flashdbm/servers/ramp"
)

// A RampTable serves the keys of a RAMP table: GET, SET, DEL, EXISTS, STRLEN, and MGET and MSET as atomic
// transactions (RAMP, read atomic isolation). It refuses expiry, SCAN, and commands that read a key in order to write
// it (SETNX, INCR, APPEND, ...): RAMP transactions write without reading.
type RampTable struct{ Client RampClient }

// RampClient is a client of the node in this process, or of all nodes.
type RampClient interface {
	PutAll(ctx context.Context, pairs []ramp.Pair) (ramp.Timestamp, error)
	GetAll(ctx context.Context, keys [][]byte) ([]ramp.Value, error)
}

var errNotOfRamp = errors.New("a RAMP table has GET, SET, MGET, MSET, DEL, UNLINK, EXISTS and STRLEN: no expiry, and nothing that depends on the old value")

// rampError translates an error of a RAMP table into the corresponding error of a HydraDB table, for which
// storeErrors has the answers.
func rampError(err error) error {
	if err == nil {
		return nil
	}
	for of, as := range map[error]error{
		ramp.ErrUnknownOutcome: hydra.ErrUnknownOutcome, ramp.ErrUnavailable: hydra.ErrUnavailable, ramp.ErrFull: hydra.ErrFull,
	} {
		if errors.Is(err, of) {
			return fmt.Errorf("%w (%w)", as, err)
		}
	}
	return err
}

// pairLists have the memory of lists that are no longer used.
var pairLists = sync.Pool{New: func() any { return new([]ramp.Pair) }}

// SetAll implements Transactions.
func (t RampTable) SetAll(ctx context.Context, args [][]byte) error {
	list := pairLists.Get().(*[]ramp.Pair)
	pairs := (*list)[:0]
	for i := 0; i < len(args); i += 2 {
		pairs = append(pairs, ramp.Pair{Key: args[i], Value: args[i+1]})
	}
	_, err := t.Client.PutAll(ctx, pairs)
	clear(pairs)
	*list = pairs
	pairLists.Put(list)
	return rampError(err)
}

// GetAll implements Transactions.
func (t RampTable) GetAll(ctx context.Context, keys [][]byte, got func([]byte)) error {
	values, err := t.Client.GetAll(ctx, keys)
	if err != nil {
		return rampError(err)
	}
	for _, v := range values {
		if !v.Found {
			got(nil)
		} else {
			got(v.Value[:len(v.Value):len(v.Value)])
		}
	}
	return nil
}

func (t RampTable) one(ctx context.Context, key []byte) (ramp.Value, error) {
	values, err := t.Client.GetAll(ctx, [][]byte{key})
	switch {
	case err != nil:
		return ramp.Value{}, rampError(err)
	case !values[0].Found:
		return ramp.Value{}, hydra.ErrNotFound
	}
	return values[0], nil
}

// GetInto implements Store.
func (t RampTable) GetInto(ctx context.Context, key, dst []byte) ([]byte, error) {
	v, err := t.one(ctx, key)
	return append(dst, v.Value...), err
}

// GetItem implements Store.
func (t RampTable) GetItem(ctx context.Context, key []byte) (hydra.Item, error) {
	v, err := t.one(ctx, key)
	return hydra.Item{Value: v.Value, Version: uint64(v.TS)}, err
}

// Put implements Store.
func (t RampTable) Put(ctx context.Context, key, value []byte, e ...hydra.Expiry) (uint64, error) {
	if len(e) > 0 && e[0] != (hydra.Expiry{}) {
		return 0, errNotOfRamp
	}
	ts, err := t.Client.PutAll(ctx, []ramp.Pair{{Key: key, Value: value}})
	return uint64(ts), rampError(err)
}

// CompareAndSet implements Store.
func (RampTable) CompareAndSet(context.Context, []byte, uint64, []byte, ...hydra.Expiry) (uint64, error) {
	return 0, errNotOfRamp
}

// CompareAndDelete implements Store.
func (RampTable) CompareAndDelete(context.Context, []byte, uint64) error { return errNotOfRamp }

// ScanPage implements Store.
func (RampTable) ScanPage(context.Context, uint64, *hydra.ScanOptions) ([]hydra.Entry, uint64, bool, error) {
	return nil, 0, false, errNotOfRamp
}

// Batch implements Store. The reads of a batch are one transaction, and so are its writes: a pipeline of SETs needs
// one PREPARE for each partition.
func (t RampTable) Batch(ctx context.Context, list []hydra.Request) error {
	var keys [][]byte
	var pairs []ramp.Pair
	var reads, writes []*hydra.Request
	for i := range list {
		r := &list[i]
		switch {
		case r.Kind == hydra.Put && r.Expiry == (hydra.Expiry{}):
			writes, pairs = append(writes, r), append(pairs, ramp.Pair{Key: r.Key, Value: r.Value})
		case r.Kind == hydra.Delete:
			writes, pairs = append(writes, r), append(pairs, ramp.Pair{Key: r.Key, Remove: true})
			reads, keys = append(reads, r), append(keys, r.Key)
		case r.Kind == hydra.Get:
			reads, keys = append(reads, r), append(keys, r.Key)
		default:
			r.Err = errNotOfRamp
		}
	}
	if len(reads) > 0 {
		values, err := t.Client.GetAll(ctx, keys)
		for i, r := range reads {
			switch {
			case err != nil:
				r.Err = rampError(err)
			case !values[i].Found:
				r.Err = hydra.ErrNotFound
			default:
				r.Item = hydra.Item{Value: values[i].Value, Version: uint64(values[i].TS)}
			}
		}
	}
	if len(writes) > 0 {
		if _, all := t.Client.PutAll(ctx, pairs); all != nil {
			for i, r := range writes {
				err := all
				if len(writes) > 1 && !errors.Is(all, ramp.ErrUnknownOutcome) { // the error may be about one of the writes only
					_, err = t.Client.PutAll(ctx, pairs[i:i+1])
				}
				if err != nil {
					r.Err = rampError(err)
				}
			}
		}
	}
	return nil
}
