package ramp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"flashdbm/servers/circle"
	"flashdbm/servers/ramp/protocol"
)

// A Value is GetAll's result for a key.
type Value struct {
	Value []byte
	Found bool
	TS    Timestamp // of the version
}

// A get is a GetAll.
type get struct {
	underWay
	keys    []getKey // in ascending order of hashes, each key once
	order   []int    // for each of the caller's keys, the index in keys
	buf     []byte   // contents of versions
	left    int      // number of answers and Reads under way
	reading int      // number of Reads under way
	expect  int      // bytes of the queued Reads
	round   int
	gone    bool
	err     error
	groups  []group
	done    func([]Value, error)
}

type getKey struct {
	key   []byte
	hash  uint64
	link  *link
	term  uint64 // of the partition, when the transaction began
	state protocol.State
	ts    Timestamp
	meta  protocol.Meta
	value []byte
	want  Timestamp // timestamp of the version to request in the second round
	tries int       // number of Reads
	read  bool      // the version is from a Read
}

// writer returns the transaction that wrote the key's version.
func (k *getKey) writer() protocol.Transaction {
	return protocol.Transaction{TS: k.ts, Client: k.meta.Client}
}

// forgotten reports whether one of the transactions named in the second round may have written the key although the
// partition has no such version: the transaction's timestamp is at most floor, up to which the partition may have
// forgotten a remove of the key, and it is above that of the first round's version, or equal to it if that version
// has a value.
func (k *getKey) forgotten(among []protocol.Transaction, floor Timestamp) bool {
	return slices.ContainsFunc(among, func(o protocol.Transaction) bool {
		return o.TS <= floor && (o.TS > k.ts || o.TS == k.ts && k.state == protocol.StateFound)
	})
}

// A group is the keys that one partition is asked for.
type group struct {
	link *link
	keys []int
	then *group // the group to request after this one was answered
}

// halves splits a group for which a partition does not have enough memory into two.
func (g *group) halves() group {
	half := len(g.keys) / 2
	return group{g.link, g.keys[:half], &group{g.link, g.keys[half:], g.then}}
}

// maxReads is how often a slot is Read before its key is requested by message.
const maxReads = 3

// startGet begins a GetAll. The keys must not change until done was called.
func (e *engine) startGet(keys [][]byte, deadline int64, done func([]Value, error)) *get {
	t := &get{done: done}
	t.deadline = deadline
	if err := t.sort(e, keys); err != nil {
		t.ended = true
		done(nil, err)
		return t
	}
	e.run(t)
	t.begin(e)
	return t
}

func (t *get) sort(e *engine, keys [][]byte) error {
	if len(keys) == 0 || len(keys) > protocol.MaxKeys {
		return fmt.Errorf("%w: %d keys; 1 to %d are possible", ErrTooLarge, len(keys), protocol.MaxKeys)
	}
	t.keys = make([]getKey, len(keys))
	t.order = make([]int, len(keys))
	for i, k := range keys {
		if len(k) > protocol.MaxKey {
			return fmt.Errorf("%w: a key of %d bytes; %d are possible", ErrTooLarge, len(k), protocol.MaxKey)
		}
		h := circle.Hash(e.seed, k)
		t.keys[i] = getKey{key: k, hash: h, link: e.owner(h)}
	}
	byHash := func(a, b getKey) int {
		switch {
		case a.hash < b.hash:
			return -1
		case a.hash > b.hash:
			return 1
		}
		return slices.Compare(a.key, b.key)
	}
	slices.SortFunc(t.keys, byHash)
	t.keys = slices.CompactFunc(t.keys, func(a, b getKey) bool { return byHash(a, b) == 0 })
	for i, k := range keys {
		t.order[i], _ = slices.BinarySearchFunc(t.keys, getKey{key: k, hash: circle.Hash(e.seed, k)}, byHash)
	}
	return nil
}

// begin starts the first round.
func (t *get) begin(e *engine) {
	t.round, t.gone, t.buf, t.left, t.expect = 1, false, nil, 1, 0
	for i := range t.keys {
		k := &t.keys[i]
		*k = getKey{key: k.key, hash: k.hash, link: k.link, term: k.link.term}
		if e.alg == Fast || e.alg == Uncontrolled {
			if t.readSlot(e, i) {
				continue
			}
		}
		t.ask(i)
	}
	flags := protocol.Flags(0)
	switch e.alg {
	case Small:
		flags = protocol.FlagTimestamps
	case Fast, Uncontrolled:
		flags = protocol.FlagPointer
	}
	if t.reading > 0 {
		t.buf = make([]byte, 0, t.expect)
		for _, l := range e.links {
			e.pushReads(l)
		}
	}
	t.sendGroups(e, flags, nil)
	t.arrived(e)
}

func (t *get) ask(i int) {
	l := t.keys[i].link
	for g := range t.groups {
		if t.groups[g].link == l {
			t.groups[g].keys = append(t.groups[g].keys, i)
			return
		}
	}
	t.groups = append(t.groups, group{link: l, keys: []int{i}})
}

// sendGroups sends one GET to each partition in groups.
func (t *get) sendGroups(e *engine, flags protocol.Flags, among []protocol.Transaction) {
	groups := t.groups
	t.groups = nil
	for _, g := range groups {
		if flags&protocol.FlagPointer != 0 && g.link.reader == nil {
			t.send(e, g, flags&^protocol.FlagPointer, among)
			continue
		}
		t.send(e, g, flags, among)
	}
}

func (t *get) send(e *engine, g group, flags protocol.Flags, among []protocol.Transaction) {
	t.left++
	q := &protocol.Get{Among: among}
	for _, i := range g.keys {
		q.Keys = append(q.Keys, protocol.Wanted{TS: t.keys[i].want, Key: t.keys[i].key})
	}
	e.send(g.link, &call{op: protocol.OpGet, flags: flags, size: q.Size(), append: q.AppendBody, of: &t.underWay,
		done: func(c *call, s protocol.Status, body []byte, _ error) {
			if t.ended {
				return
			}
			var got protocol.Got
			switch {
			case s == protocol.StatusFull && len(g.keys) > 1:
				t.send(e, g.halves(), flags, among)
			case s != protocol.StatusOK:
				t.err = failed(s)
			case got.Parse(body, len(g.keys)) != nil:
				t.err = errProtocol
			default:
				t.take(e, g, c, among, &got)
				if g.then != nil {
					t.send(e, *g.then, flags, among)
				}
			}
			t.arrived(e)
		}})
}

// take handles the answer to a GET.
func (t *get) take(e *engine, g group, c *call, among []protocol.Transaction, got *protocol.Got) {
	e.reign(g.link, got.Term, c.sent, got.Tenure)
	for n, i := range g.keys {
		v := &got.Versions[n]
		k := &t.keys[i]
		if v.Slot.Length > 0 {
			e.learn(g.link, got.Term, k, v.Slot)
		}
		switch {
		case v.State == protocol.StateOmitted:
			if len(g.keys) == 1 {
				t.err = ErrTooLarge
			} else {
				t.send(e, group{link: g.link, keys: []int{i}}, c.flags, among)
			}
		case v.State == protocol.StateGone || got.Term != k.term: // invariant 6
			t.gone = true
		case v.State == protocol.StateNever && t.round == 2: // invariant 10
			t.gone = t.gone || k.forgotten(among, v.TS)
		default:
			t.set(k, v.State, v.TS, v.Content)
		}
	}
}

// set keeps a copy of a version.
func (t *get) set(k *getKey, s protocol.State, ts Timestamp, content []byte) {
	k.state, k.ts, k.meta, k.value = s, ts, protocol.Meta{}, nil
	if s == protocol.StateNever {
		return
	}
	n := len(t.buf)
	t.buf = append(t.buf, content...)
	var err error
	if k.meta, k.value, err = protocol.ParseContent(t.buf[n:len(t.buf):len(t.buf)]); err != nil {
		t.err = err
	}
}

// arrived counts one answer. The last one ends the round.
func (t *get) arrived(e *engine) {
	if t.left--; t.left > 0 || t.ended {
		return
	}
	switch {
	case t.err != nil:
		t.end(e, nil, t.err)
	case t.gone || t.round == 1 && !t.lived(e):
		e.counts.Retries++
		t.begin(e)
	case t.round == 1 && t.repair(e):
	default:
		t.end(e, t.values(), nil)
	}
}

// lived reports whether all lives whose memory was Read still had tenure when the last answer of the round came (rule
// 1). A new life answers nothing before the tenure of the previous life has ended, so the other answers are from
// before that time, too.
func (t *get) lived(e *engine) bool {
	if !slices.ContainsFunc(t.keys, func(k getKey) bool { return k.read }) {
		return true
	}
	e.look()
	return !slices.ContainsFunc(t.keys, func(k getKey) bool { return k.read && (k.link.term != k.term || e.now >= k.link.tenure) })
}

// repair begins the second round, if one is needed.
func (t *get) repair(e *engine) bool {
	t.round = 2
	switch e.alg {
	case Fast:
		for i := range t.keys {
			t.wantSiblings(&t.keys[i])
		}
	case Hybrid:
		return t.repairAmong(e, func(k *getKey) (among []protocol.Transaction) {
			for j := range t.keys {
				if o := &t.keys[j]; o.ts > k.ts && o.meta.Has(k.hash) {
					among = append(among, o.writer())
				}
			}
			return among
		})
	case Small:
		var all []protocol.Transaction
		for i := range t.keys {
			if t.keys[i].state != protocol.StateNever {
				all = append(all, t.keys[i].writer())
			}
		}
		all = sorted(all)
		return len(all) > 0 && t.repairAmong(e, func(*getKey) []protocol.Transaction { return all })
	}
	t.left = 1
	for i := range t.keys {
		if k := &t.keys[i]; k.want != 0 {
			e.counts.Repaired++
			t.ask(i)
		}
	}
	if len(t.groups) == 0 {
		return false
	}
	t.sendGroups(e, 0, nil)
	t.arrived(e)
	return true
}

// wantSiblings sets want for those keys whose version is older than the one that o's transaction wrote. The keys
// and the version's hashes are both in ascending order.
func (t *get) wantSiblings(o *getKey) {
	d := o.meta.Data
	if o.meta.Kind != protocol.KindHashes {
		return
	}
	i := 0
	for ; len(d) > 0 && i < len(t.keys); d = d[8:] {
		h := binary.LittleEndian.Uint64(d)
		for i < len(t.keys) && t.keys[i].hash < h {
			i++
		}
		for j := i; j < len(t.keys) && t.keys[j].hash == h; j++ {
			if k := &t.keys[j]; k.ts < o.ts {
				k.want = max(k.want, o.ts)
			}
		}
	}
}

// sorted returns the transactions in a fixed order, each once.
func sorted(list []protocol.Transaction) []protocol.Transaction {
	slices.SortFunc(list, func(a, b protocol.Transaction) int {
		return cmp.Or(cmp.Compare(a.TS, b.TS), cmp.Compare(a.Client, b.Client))
	})
	return slices.Compact(list)
}

// repairAmong requests the newest version of each key among those that certain transactions wrote. Keys with the same
// transactions are requested together.
func (t *get) repairAmong(e *engine, of func(*getKey) []protocol.Transaction) bool {
	type asked struct {
		among []protocol.Transaction
		keys  []int
	}
	var sets []asked
	for i := range t.keys {
		among := of(&t.keys[i])
		if len(among) == 0 {
			continue
		}
		e.counts.Repaired++
		among = sorted(among)
		at := slices.IndexFunc(sets, func(a asked) bool { return slices.Equal(a.among, among) })
		if at < 0 {
			at = len(sets)
			sets = append(sets, asked{among: among})
		}
		sets[at].keys = append(sets[at].keys, i)
	}
	if len(sets) == 0 {
		return false
	}
	t.left = 1
	for _, s := range sets {
		for _, i := range s.keys {
			t.ask(i)
		}
		t.sendGroups(e, 0, s.among)
	}
	t.arrived(e)
	return true
}

// values returns the results, in the order of the caller's keys.
func (t *get) values() []Value {
	list := make([]Value, len(t.order))
	for i, at := range t.order {
		k := &t.keys[at]
		if list[i].TS = k.ts; k.state == protocol.StateFound {
			list[i].Found, list[i].Value = true, k.value
		} else if k.state == protocol.StateNever {
			list[i].TS = 0
		}
	}
	return list
}

func (t *get) end(e *engine, v []Value, err error) {
	if !e.ended(&t.underWay) {
		return
	}
	t.done(v, err)
}

func (t *get) links() (list []*link) {
	for _, k := range t.keys {
		list = append(list, k.link)
	}
	return list
}

func (t *get) abandon(e *engine, why error) {
	t.end(e, nil, fmt.Errorf("%w (%w)", ErrUnavailable, why))
}
