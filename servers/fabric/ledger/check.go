package ledger

import (
	"fmt"
	"math"

	"flashdbm/servers/fabric"
)

// Check returns what makes a work request malformed for a provider with the given limits. It does not check local
// memory; regions.Table.Own does.
func Check(w *fabric.WR, caps fabric.Caps) error {
	const known = fabric.Signal | fabric.Notify | fabric.Inline
	switch {
	case w.Op < fabric.Read || w.Op > fabric.Recv:
		return fmt.Errorf("%w: there is no operation %d", fabric.ErrInvalid, w.Op)
	case w.Flags&^known != 0:
		return fmt.Errorf("%w: there is no flag %#x", fabric.ErrInvalid, w.Flags&^known)
	case w.Flags&fabric.Notify != 0 && w.Op != fabric.Write:
		return fmt.Errorf("%w: Notify is for Write", fabric.ErrInvalid)
	case w.Flags&fabric.Inline != 0 && w.Op != fabric.Write && w.Op != fabric.Send:
		return fmt.Errorf("%w: Inline is for Write and Send", fabric.ErrInvalid)
	case w.Flags&fabric.Inline != 0 && w.LLen > uint64(caps.MaxInline):
		return fmt.Errorf("%w: %d bytes inline, %d at most", fabric.ErrInvalid, w.LLen, caps.MaxInline)
	case w.Op == fabric.Send && w.LLen > uint64(caps.MaxSend):
		return fmt.Errorf("%w: a Send of %d bytes, %d at most", fabric.ErrInvalid, w.LLen, caps.MaxSend)
	case w.LLen > math.MaxUint32:
		return fmt.Errorf("%w: %d bytes, %d at most", fabric.ErrInvalid, w.LLen, uint32(math.MaxUint32))
	}
	return nil
}

// CheckOptions returns what is wrong with the options of an endpoint, or with a hello or its answer.
func CheckOptions(o fabric.EndpointOptions, hello []byte) error {
	if len(hello) > fabric.MaxHello {
		return fmt.Errorf("fabric: a hello of %d bytes, %d at most", len(hello), fabric.MaxHello)
	}
	for _, q := range []fabric.Queue{o.Send, o.Recv} {
		if Of(q) == nil {
			return fmt.Errorf("fabric: Send and Recv of EndpointOptions must be queues of the domain, one is %T", q)
		}
	}
	if o.Depth < 0 || o.Recvs < 0 {
		return fmt.Errorf("fabric: EndpointOptions with a depth of %d and %d Recvs: want 0 or more", o.Depth, o.Recvs)
	}
	return nil
}

// Of returns the ledger's Queue inside a provider's queue, nil if q is nil or of another package.
func Of(q fabric.Queue) *Queue {
	switch q := q.(type) {
	case *Queue:
		return q
	case interface{ Account() *Queue }:
		return q.Account()
	}
	return nil
}
