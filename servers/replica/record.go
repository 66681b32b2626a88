package replica

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A Record says which member reigns over a shard, and which members must have an entry before it is committed.
type Record struct {
	Revision uint64   `json:"-"` // of the record in package cluster; 0: there is none
	Term     uint64   `json:"term"`
	Primary  string   `json:"primary"`
	Set      []string `json:"set"` // the primary is one of them
	// Handed says that the previous primary made this record, at a time when no client relied on its tenure any
	// more (invariant 11).
	Handed bool `json:"handed,omitempty"`
	// Life counts how often the shard has lost its whole set and continued with the content of some file. Within one
	// life no acknowledged entry is lost.
	Life uint64 `json:"life,omitempty"`
}

// Data returns the value of the record in package cluster.
func (r *Record) Data() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// ParseRecord decodes a value and its revision.
func ParseRecord(data []byte, revision uint64) (r Record, err error) {
	if err := json.Unmarshal(data, &r); err != nil || r.Term == 0 || !r.Has(r.Primary) {
		return Record{}, fmt.Errorf("replica: %q is no record of a shard: %v", data, err)
	}
	r.Revision = revision
	return r, nil
}

// Has reports whether the member is in the set.
func (r *Record) Has(member string) bool { return slices.Contains(r.Set, member) }

// with returns the record with one more member, without with one less. The revision stays the same: it is the one
// that the compare-and-set expects.
func (r Record) with(member string) Record {
	r.Set = append(slices.Clone(r.Set), member)
	return r
}

func (r Record) without(member string) Record {
	r.Set = slices.DeleteFunc(slices.Clone(r.Set), func(m string) bool { return m == member })
	return r
}

// A Term says with which entry a term began.
type Term struct{ Term, First uint64 }

// termAt returns the term of an entry, 0 if it is not known.
func termAt(terms []Term, seq uint64) uint64 {
	for i := len(terms) - 1; i >= 0; i-- {
		if terms[i].First <= seq {
			return terms[i].Term
		}
	}
	return 0
}

// noteTerm adds a term to a table if it is new.
func noteTerm(terms []Term, term, seq uint64) []Term {
	if n := len(terms); n == 0 || terms[n-1].Term != term {
		terms = append(terms, Term{term, seq})
		if len(terms) > maxTerms {
			terms = slices.Clone(terms[1:])
		}
	}
	return terms
}

// maxTerms is the number of terms that are remembered. A member whose newest entry is of an older term receives a
// copy instead of the missing entries.
const maxTerms = 64
