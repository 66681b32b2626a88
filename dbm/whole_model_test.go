package dbm

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A wholeRecord is a record of the model of TestWholeModel.
type wholeRecord struct {
	value string
	life  wholeLife
}

// A wholeLife says when a record expires.
type wholeLife uint8

const (
	forever wholeLife = iota // never
	hour                     // not while the test runs
	instant                  // before the next transaction begins
)

// A wholeState is what a transaction may see: keyspaces by name, and their records. Its tables are never changed. The
// default keyspace has the number 0 and no name.
type wholeState struct {
	names  map[string]int
	tables map[int]map[string]wholeRecord
}

func (s *wholeState) clone() *wholeState {
	return &wholeState{maps.Clone(s.names), maps.Clone(s.tables)}
}

// in returns the records between two keys in order; an empty bound is open.
func keysIn(table map[string]wholeRecord, from, to []byte) (keys []string) {
	for k := range table {
		if k >= string(from) && (to == nil || k < string(to)) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// A wholeKey is a key in the keyspace of a number. The names of keyspaces are keys of the keyspace -1.
type wholeKey struct {
	space int
	key   string
}

const catalogSpace = -1

func (k wholeKey) String() string { return fmt.Sprintf("%d/%.20q", k.space, k.key) }

// A wholeCommit is what one commit did.
type wholeCommit struct {
	changed map[wholeKey]bool // a transaction that has read, and writes one of these, conflicts
	touched map[wholeKey]bool // a transaction that has read, and writes one of these, may conflict
	ranges  []wholeRange      // as touched
	removed map[int]bool      // keyspaces that were dropped or renamed: a transaction that writes in them conflicts
	any     bool              // any transaction that has read may conflict
	created bool              // it created a keyspace; if two transactions do so, the second one conflicts
}

type wholeRange struct {
	space    int
	from, to []byte
}

func (r wholeRange) has(k wholeKey) bool {
	return r.space == k.space && k.key >= string(r.from) && (r.to == nil || k.key < string(r.to))
}

func newWholeCommit() *wholeCommit {
	return &wholeCommit{map[wholeKey]bool{}, map[wholeKey]bool{}, nil, map[int]bool{}, false, false}
}

// A wholeTx is a transaction and its model.
type wholeTx struct {
	tx      *Tx
	opts    TxOptions
	begun   int         // commits before it
	state   *wholeState // what the transaction sees
	own     map[int]bool
	handles map[int]*Tx // of keyspaces that it asked for, by number
	did     *wholeCommit
	read    bool              // it has read something, so that it may conflict
	reads   map[wholeKey]bool // what a Serializable transaction is known to have read
	writes  bool
	spaces  bool // the database had keyspaces when the transaction began
	times   bool // the database had records that expire when the transaction began
}

// table returns a table that may be changed.
func (x *wholeTx) table(space int) map[string]wholeRecord {
	if !x.own[space] {
		x.own[space] = true
		x.state.tables[space] = maps.Clone(x.state.tables[space])
	}
	return x.state.tables[space]
}

func (x *wholeTx) put(space int, key string, r wholeRecord) {
	x.table(space)[key] = r
	k := wholeKey{space, key}
	x.did.changed[k], x.did.touched[k], x.writes = true, true, true
}

func (x *wholeTx) remove(space int, key string) {
	k := wholeKey{space, key}
	if _, ok := x.state.tables[space][key]; ok {
		delete(x.table(space), key)
		x.did.changed[k] = true
	}
	x.did.touched[k], x.writes = true, true
}

// conflicts returns why the commit of the transaction must fail, given the commits since it began, or "", and whether
// it may fail.
func (x *wholeTx) conflicts(since []*wholeCommit) (must string, may bool) {
	if !x.writes {
		return "", false
	}
	for _, c := range since {
		may = may || c.any || c.created && x.did.created || x.opts.Serializable && len(c.touched) > 0
		for id := range c.removed {
			if _, asked := x.handles[id]; asked {
				may = true
				if len(x.did.touched) > 0 {
					must = fmt.Sprintf("keyspace %d was removed", id)
				}
			}
		}
		for k := range x.did.touched {
			may = may || c.touched[k] || slices.ContainsFunc(c.ranges, func(r wholeRange) bool { return r.has(k) })
			if (x.read || x.opts.CheckWrites || k.space == catalogSpace) && x.did.touched[k] && c.changed[k] {
				must = fmt.Sprintf("both wrote %v", k)
			}
		}
		for _, r := range x.did.ranges {
			may = may || slices.ContainsFunc(c.ranges, func(o wholeRange) bool { return o.space == r.space })
			for k := range c.touched {
				may = may || r.has(k)
				if r.has(k) && c.changed[k] {
					must = fmt.Sprintf("range from %.60q to %.60q, and %v", r.from, r.to, k)
				}
			}
		}
		for k := range x.reads {
			if x.opts.Serializable && c.changed[k] && len(x.did.touched) > 0 {
				must = fmt.Sprintf("read %v", k)
			}
		}
	}
	return must, may || must != ""
}

// merge applies what the transaction did to the newest state.
func (x *wholeTx) merge(s *wholeState) *wholeState {
	s = s.clone()
	own := map[int]bool{}
	for k := range x.did.touched {
		if k.space == catalogSpace {
			if id, ok := x.state.names[k.key]; ok {
				s.names[k.key] = id
			} else {
				delete(s.names, k.key)
			}
			continue
		}
		if !own[k.space] {
			own[k.space] = true
			if s.tables[k.space] = maps.Clone(s.tables[k.space]); s.tables[k.space] == nil {
				s.tables[k.space] = map[string]wholeRecord{}
			}
		}
		r, ok := x.state.tables[k.space][k.key]
		if ok && r.life != instant {
			s.tables[k.space][k.key] = r
		} else {
			delete(s.tables[k.space], k.key)
		}
	}
	return s.trim()
}

// trim removes tables without a name.
func (s *wholeState) trim() *wholeState {
	live := map[int]bool{0: true}
	for _, id := range s.names {
		live[id] = true
		if s.tables[id] == nil {
			s.tables[id] = map[string]wholeRecord{}
		}
	}
	maps.DeleteFunc(s.tables, func(id int, _ map[string]wholeRecord) bool { return !live[id] })
	return s
}

// sees compares all that a transaction can read with the state.
func (s *wholeState) sees(tx *Tx, rng *rand.Rand) error {
	names := slices.Sorted(maps.Keys(s.names))
	if got := slices.Collect(tx.Keyspaces()); !slices.Equal(got, names) {
		return fmt.Errorf("keyspaces %q, want %q (%w)", got, names, tx.Err())
	}
	if err := s.seesTable(tx, 0, rng); err != nil {
		return fmt.Errorf("default keyspace: %w", err)
	}
	for _, name := range names {
		h, err := tx.Keyspace(name)
		if err == nil {
			err = s.seesTable(h, s.names[name], rng)
		}
		if err != nil {
			return fmt.Errorf("keyspace %q: %w", name, err)
		}
	}
	return nil
}

func (s *wholeState) seesTable(tx *Tx, space int, rng *rand.Rand) error {
	table := s.tables[space]
	keys := keysIn(table, nil, nil)
	if n, err := tx.Len(); err != nil || n != int64(len(keys)) {
		return fmt.Errorf("%d records, want %d (%w)", n, len(keys), err)
	}
	i := 0
	for k, v := range tx.All() {
		if i == len(keys) || string(k) != keys[i] || string(v) != table[keys[i]].value {
			return fmt.Errorf("record %d of %d is %.60q, %s", i, len(keys), k, briefly(string(v)))
		}
		i++
	}
	if err := tx.Err(); err != nil || i != len(keys) {
		return fmt.Errorf("%d records in order, want %d (%w)", i, len(keys), err)
	}
	if rng.IntN(3) == 0 {
		for k, v := range tx.Backward(nil, nil) {
			if i--; i < 0 || string(k) != keys[i] || string(v) != table[keys[i]].value {
				return fmt.Errorf("backward: record %d is %.60q, %s", i, k, briefly(string(v)))
			}
		}
		if i != 0 || tx.Err() != nil {
			return fmt.Errorf("backward: %d records are missing (%w)", i, tx.Err())
		}
	}
	for range 5 {
		key := wholeAnyKey(rng)
		if len(keys) > 0 && rng.IntN(2) == 0 {
			key = []byte(keys[rng.IntN(len(keys))])
		}
		if err := s.seesKey(tx, space, key); err != nil {
			return err
		}
	}
	return nil
}

func (s *wholeState) seesKey(tx *Tx, space int, key []byte) error {
	want, found := s.tables[space][string(key)]
	v, err := tx.Get(key)
	if found && (err != nil || string(v) != want.value) || !found && err != ErrNotFound {
		return fmt.Errorf("get %.60q: %s, %w; want %s", key, briefly(string(v)), err, briefly(want.value))
	}
	if has, err := tx.Has(key); err != nil || has != found {
		return fmt.Errorf("has %.60q: %v, %w", key, has, err)
	}
	left, expires, err := tx.TTL(key)
	if found && (err != nil || expires != (want.life != forever) || want.life == hour && (left < 50*time.Minute || left > 2*time.Hour)) || !found && err != ErrNotFound {
		return fmt.Errorf("ttl %.60q: %v, %v, %w; want %v, found %v", key, left, expires, err, want.life, found)
	}
	return nil
}

func briefly(v string) string {
	if len(v) > 40 {
		return fmt.Sprintf("%q and so on, %d bytes", v[:30], len(v))
	}
	return strconv.Quote(v)
}

// wholeAnyKey draws one of few keys, so that transactions conflict.
func wholeAnyKey(rng *rand.Rand) []byte {
	switch rng.IntN(40) {
	case 0:
		return nil
	case 1:
		return []byte{0xFF}
	case 2, 3:
		return append([]byte{0xFF, byte(rng.IntN(256))}, "x"...)
	case 4:
		return bytes.Repeat([]byte("l"), 900+rng.IntN(3)*200)
	case 5:
		return bytes.Repeat([]byte{byte('m' + rng.IntN(2))}, []int{4000, 4100, 20000, 65530}[rng.IntN(4)])
	case 6, 7, 8, 9, 10, 11:
		return fmt.Appendf(nil, "n%d", rng.IntN(6)) // numbers
	case 12:
		return []byte{0, byte(rng.IntN(4))}
	case 13, 14, 15, 16, 17, 18:
		return fmt.Appendf(nil, "%05d", rng.IntN(2000)) // of many keys
	}
	return fmt.Appendf(nil, "k%02d", rng.IntN(30))
}

var wholeText = strings.Repeat("all work and no play makes a dull value; ", 1<<17)

func wholeValue(rng *rand.Rand) []byte {
	var n int
	switch rng.IntN(100) {
	case 0:
		n = 1<<20 + rng.IntN(2<<20)
	case 1:
		n = 1<<20 - 20 + rng.IntN(40)
	case 2, 3, 4:
		n = 4000 + rng.IntN(60000)
	case 5, 6, 7, 8, 9, 10, 11, 12:
		n = 250 + rng.IntN(4000)
	case 13, 14:
		n = 0
	default:
		n = rng.IntN(200)
	}
	from := rng.IntN(1 << 10)
	return []byte(wholeText[from : from+n])
}
