package replica

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A Record says who reigns over a shard, and which members must have an entry before the entry counts.
type Record struct {
	Revision uint64   `json:"-"` // of the record in package cluster; 0: there is none
	Term     uint64   `json:"term"`
	Primary  string   `json:"primary"`
	Set      []string `json:"set"` // the primary is one of them
	// Handed says that the primary before has made this record, when nobody could rely on its tenure any more (invariant 11).
	Handed bool `json:"handed,omitempty"`
	// Life is how often the shard has lost all of its set, and gone on with what a file had. Within one life nothing is lost that was acknowledged.
	Life uint64 `json:"life,omitempty"`
}

// Data returns the record's value in package cluster.
func (r *Record) Data() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// ParseRecord decodes a value that has the revision.
func ParseRecord(data []byte, revision uint64) (r Record, err error) {
	if err := json.Unmarshal(data, &r); err != nil || r.Term == 0 || !r.Has(r.Primary) {
		return Record{}, fmt.Errorf("replica: %q is no record of a shard: %v", data, err)
	}
	r.Revision = revision
	return r, nil
}

// Has reports whether the member is in the set.
func (r *Record) Has(member string) bool { return slices.Contains(r.Set, member) }

// with returns the record with one member more, without with one less. The revision stays: it is what the change is made from.
func (r Record) with(member string) Record {
	r.Set = append(slices.Clone(r.Set), member)
	return r
}

func (r Record) without(member string) Record {
	r.Set = slices.DeleteFunc(slices.Clone(r.Set), func(m string) bool { return m == member })
	return r
}

// A Term tells with which entry a term began.
type Term struct{ Term, First uint64 }

// termAt returns the term of an entry, 0 if that is not known.
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

// maxTerms is how many terms are remembered. A member whose newest entry is of an older one gets a copy instead of what it lacks.
const maxTerms = 64
