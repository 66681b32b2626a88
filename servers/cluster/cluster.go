// Package cluster is what the nodes of a cluster agree on: small values under names, changed by compare-and-set, watched, and bound to
// sessions. Memory is the implementation of one process; a cluster of several processes uses etcd's.
//
// What every implementation promises:
//
//  1. All changes have one order. A revision is a place in it; the revision of a value is that of the change that set it.
//  2. CompareAndSet changes a value if and only if its revision is the expected one, as are those of the others that it names. With an error other than ErrChanged the outcome is
//     unknown: the change may have happened, may happen later, or never.
//  3. A watch tells of every change of its names after its revision, in order, each once.
//  4. What is bound to a session is removed when the session ends: when it is closed, or when its owner has not been heard of for its time
//     to live. Its owner may learn of that late.
//  5. At most one candidate of an election is its leader, but a leader may learn late that it is none any more. Whoever acts as leader does
//     so by a CompareAndSet that fails for a former one.
package cluster

import (
	"context"
	"errors"
	"time"
)

// The errors of this package, for errors.Is.
var (
	ErrChanged = errors.New("cluster: the value has another revision")
	ErrClosed  = errors.New("cluster: closed")
	ErrSession = errors.New("cluster: the session has ended")
)

// A Value is what a name has. Revision 0 stands for a name without a value; Data is nil then.
type Value struct {
	Name     string
	Data     []byte
	Revision uint64
}

// Cluster is used by any number of goroutines. Slices are copied in both directions.
type Cluster interface {
	// Get returns the value of the name.
	Get(ctx context.Context, name string) (Value, error)
	// List returns the values whose names begin so, in the order of names, as they were at one moment, and that moment's revision.
	List(ctx context.Context, prefix string) (values []Value, revision uint64, err error)
	// CompareAndSet sets the value of a name whose value has the revision, 0 for none, and returns the new revision. nil data removes it. With
	// others it does so only while their values have the revisions that they name, too.
	CompareAndSet(ctx context.Context, name string, revision uint64, data []byte, others ...Value) (uint64, error)
	// Watch sends the changes of names that begin so, from the first one behind the revision on, until the context ends; then the channel is
	// closed. It is closed earlier if changes are not known any more: the caller lists anew. Of a removal, Data is nil.
	Watch(ctx context.Context, prefix string, behind uint64) <-chan Value
	// Session begins a session.
	Session(ctx context.Context, ttl time.Duration) (Session, error)
	Close() error
}

// A Session is its owner's sign of life.
type Session interface {
	// Put sets a value and binds it to the session.
	Put(ctx context.Context, name string, data []byte) (revision uint64, err error)
	// Campaign waits until the session leads the election, whose name then has the data. Resign lets another one lead.
	Campaign(ctx context.Context, election string, data []byte) error
	Resign(ctx context.Context, election string) error
	// Done is closed when the session has ended.
	Done() <-chan struct{}
	Close() error
}
