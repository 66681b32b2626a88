package partition

import (
	"slices"

	"flashdbm/servers/arena"
)

// versions are the versions of a key besides the one in its slot. They are active, that is, in Partition.active,
// while there are any, or requests wait for the key.
type versions struct {
	key      []byte // in memory of its own
	hash     uint64
	prepared []version
	old      []version // committed and overtaken
	known    bool      // the file has nothing of the key that the slot lacks
	fetching bool
	idle     bool // no longer active: other versions of the same key may be
	pins     int  // number of requests that wait for other keys, too
	parked   []*parked
	same     *versions // of another key with the same hash
}

// A version is a version of a key outside its slot. Its item's guardian is 0.
type version struct {
	ts    Timestamp
	by    Timestamp // of an old version: the timestamp of the version that has overtaken it
	place arena.Place
}

func find(list []version, ts Timestamp) int {
	return slices.IndexFunc(list, func(v version) bool { return v.ts == ts })
}

// active are the versions of all keys that have some. They are found by the hash of the key: a map of strings would
// load the key as well, from memory of its own.
type active struct {
	lists map[uint64]*versions // keys with the same hash are in one list
	count int
}

// find returns the versions of a key, nil if they are not active.
func (a *active) find(h uint64, key []byte) *versions {
	x := a.lists[h]
	for x != nil && string(x.key) != string(key) {
		x = x.same
	}
	return x
}

// add makes versions of a key active that has none.
func (a *active) add(h uint64, key []byte) *versions {
	x := &versions{key: slices.Clone(key), hash: h, same: a.lists[h]}
	a.lists[h] = x
	a.count++
	return x
}

func (a *active) remove(x *versions) {
	a.count--
	if first := a.lists[x.hash]; first != x {
		for first.same != x {
			first = first.same
		}
		first.same = x.same
	} else if x.same != nil {
		a.lists[x.hash] = x.same
	} else {
		delete(a.lists, x.hash)
	}
	x.same = nil
}

func (p *Partition) versionsOf(h uint64, key []byte) *versions {
	if x := p.active.find(h, key); x != nil {
		return x
	}
	return p.active.add(h, key)
}

// idle removes the versions of a key from active if there is nothing left in them.
func (p *Partition) idle(x *versions) {
	if len(x.prepared)+len(x.old)+len(x.parked)+x.pins == 0 && !x.fetching && !x.idle {
		x.idle = true
		p.active.remove(x)
	}
}
