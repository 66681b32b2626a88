// Package cluster is the record on which the nodes of a cluster agree: small values under names, which are changed by
// compare-and-set, watched, and bound to sessions. Memory implements it for one process; a cluster of several
// processes uses etcd (package etcdmap).
//
// Every implementation keeps these promises:
//
//  1. All changes have one order. A revision is a place in this order; the revision of a value is that of the change
//     that set the value.
//  2. CompareAndSet changes a value if and only if the value has the expected revision, and so has each of the other
//     values that the call names. After an error other than ErrChanged the outcome is unknown: the change may have
//     happened, may happen later, or may never happen.
//  3. A watch reports every change of its names after its revision, once each and in order.
//  4. A value that is bound to a session is removed when the session ends. A session ends when it is closed, or when
//     its owner has not been heard from for the session's time to live. The owner may learn of the end late.
//  5. At most one candidate of an election is its leader, but a former leader may learn late that it no longer is.
//     So a leader must act through a CompareAndSet that fails for a former leader.
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

// A Value is the value of a name. Revision 0, with nil Data, stands for a name without a value.
type Value struct {
	Name     string
	Data     []byte
	Revision uint64
}

// Cluster may be used by any number of goroutines. Slices are copied in both directions.
type Cluster interface {
	// Get returns the value of the name.
	Get(ctx context.Context, name string) (Value, error)
	// List returns the values whose names begin with the prefix, in the order of names, as of one moment, and the
	// revision of that moment.
	List(ctx context.Context, prefix string) (values []Value, revision uint64, err error)
	// CompareAndSet sets the value of a name if the value has the revision (0: no value), and returns the new
	// revision. nil data removes the value. If others are given, it does so only while each of their names has the
	// revision of that Value.
	CompareAndSet(ctx context.Context, name string, revision uint64, data []byte, others ...Value) (uint64, error)
	// Watch sends the changes of names that begin with the prefix, from the first change after the revision on, until
	// the context ends; then it closes the channel. It closes the channel earlier if changes are no longer known: the
	// caller has to list again. A removal has nil Data.
	Watch(ctx context.Context, prefix string, behind uint64) <-chan Value
	// Session begins a session.
	Session(ctx context.Context, ttl time.Duration) (Session, error)
	Close() error
}

// A Session shows that its owner is alive.
type Session interface {
	// Put sets a value and binds it to the session.
	Put(ctx context.Context, name string, data []byte) (revision uint64, err error)
	// Campaign waits until the session leads the election, and then sets the value of the election's name to the
	// data. Resign lets another candidate lead.
	Campaign(ctx context.Context, election string, data []byte) error
	Resign(ctx context.Context, election string) error
	// Done is closed when the session has ended.
	Done() <-chan struct{}
	Close() error
}
