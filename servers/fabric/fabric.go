package fabric

import (
	"context"
	"errors"
	"time"
)

// A Domain is the part of one provider that belongs to one process. It provides memory that peers may reach,
// queues that report completions, and endpoints. Any goroutine may call its methods.
type Domain interface {
	// Caps says what the provider can do.
	Caps() Caps
	// Alloc returns n bytes of zeroed, page-aligned memory outside the Go heap, with the rights a for peers.
	Alloc(n int, a Access) (Region, error)
	// NewQueue returns a queue for at least depth completions. All endpoints that share the queue together have at
	// most depth operations posted at a time.
	NewQueue(depth int) (Queue, error)
	// Listen accepts connections at an address. The provider defines the form of the address.
	Listen(addr string) (Listener, error)
	// Dial connects to an address at which a peer listens. The peer sees hello, and Dial returns the peer's answer to
	// it.
	Dial(ctx context.Context, addr string, hello []byte, o EndpointOptions) (Endpoint, []byte, error)
	// Close closes everything that the domain has returned: listeners, endpoints, queues, regions.
	Close() error
}

// Caps are the limits of a provider.
type Caps struct {
	OneSided  bool // a peer's Read or Write needs no work of the process that owns the memory
	MaxInline int  // bytes: the longest Write or Send that may be posted with Inline
	MaxSend   int  // bytes: the longest Send
}

// Access says what peers may do with a region. The owner may always load and store.
type Access uint8

// The rights of peers. A region that only takes part in operations of its own process needs no rights.
const (
	RemoteRead Access = 1 << iota
	RemoteWrite
)

// A Region is memory that operations can refer to.
type Region interface {
	// Bytes returns the memory itself. It is valid until Close; an access after Close crashes the process. Bytes that
	// peers write are read with package words.
	Bytes() []byte
	// Key returns what a peer needs to reach the region.
	Key() Key
	// Fence ends the rights of all peers: once it has returned, no operation of a peer on the region succeeds. The
	// owner can still read Bytes.
	Fence() error
	// Close fences the region, clears its memory and frees it.
	Close() error
}

// A Key names a region to a peer. Any peer that has the key can reach the memory, so the owner gives the key only to
// peers that may. Only the provider interprets the fields; the key holds no pointer of the owner's process that a
// peer could misuse.
type Key struct {
	ID    uint64 // of the region, in its owner's domain
	Rkey  uint64 // random
	Nonce uint64 // random, one for each incarnation of the owner
	Base  uint64 // the address of the first byte, as the provider counts addresses
	Len   uint64 // bytes
}

// An Endpoint is one end of a reliable connection. One goroutine at a time may call Post; any goroutine may call the
// other methods.
type Endpoint interface {
	// Post starts operations in the order given and returns how many were taken. With ErrAgain the operations w[n:]
	// were not taken: the caller polls the queue and tries again. With ErrInvalid the request w[n] is malformed, and
	// the endpoint is unharmed. After the endpoint has ended, Post takes nothing and returns Err. The caller may
	// reuse the slice at once, and the memory that the operations refer to once they are complete.
	//
	// An operation is under way, and counts against EndpointOptions.Depth and the depth of its queue, until its
	// completion has been polled. An operation without Signal counts until the completion of a later operation of the
	// same endpoint has been polled.
	Post(w []WR) (n int, err error)
	// Peer describes the other end.
	Peer() Peer
	// Done is closed when the endpoint has ended, by Close or by its first failure. Err then returns the reason, and
	// nil before. All posted operations have completed when Done is closed: those after the first failure, and all
	// that were under way at Close, with ErrFlushed. The peer's endpoint ends too.
	Done() <-chan struct{}
	Err() error
	Close() error
}

// A Reader is an Endpoint through which any goroutine can read the peer's memory directly, concurrently with Post and
// with other callers of ReadNow, and without a queue. It exists because, where a Read is a copy that the initiator
// makes, work requests and completions cost more than the copy.
type Reader interface {
	Endpoint
	// ReadNow copies len(dst) bytes at offset off of the peer's region to dst, which may be any memory, and returns
	// when the copy is done. It guarantees what a Read guarantees. An error does not end the endpoint: ErrAgain means
	// that a Read of the region has to be posted first; any other error is the one with which such a Read would fail.
	ReadNow(dst []byte, k Key, off uint64) error
}

// EndpointOptions are set when a connection is made.
type EndpointOptions struct {
	Send, Recv Queue // queues for the completions of Read, Write and Send, and for those of Recv; may be the same queue
	Depth      int   // most operations under way at a time; 0 for the provider's default
	Recvs      int   // most Recvs posted at a time; 0 for the provider's default
}

// Peer describes the other end of an endpoint.
type Peer struct {
	Addr        string
	Incarnation uint64 // random; the peer's domain chose it when it was opened
}

// Op is the kind of a work request.
type Op uint8

// The operations. Read and Write move Local[LOff:LOff+LLen] from or to the peer's memory at ROff of the region with
// key Remote. A Read or Write of no bytes ignores Local and Remote; a Write of no bytes with Notify only wakes the
// peer. A Send consumes one Recv of the peer, and fails with ErrAccess if that Recv has less room than the Send has
// bytes. A Recv always has a completion.
const (
	Read Op = 1 + iota
	Write
	Send
	Recv
)

// Flags of a work request.
type Flags uint8

const (
	// Signal asks for a completion. An operation without Signal is complete when a later operation of its endpoint
	// with Signal is complete. A failure is reported with or without Signal.
	Signal Flags = 1 << iota
	// Notify wakes the peer once the Write has been placed: it notifies the queue of the peer's Recvs.
	Notify
	// Inline copies the bytes during Post: the caller may reuse the memory as soon as Post returns. At most
	// Caps.MaxInline bytes.
	Inline
)

// A WR is a work request.
type WR struct {
	ID    uint64 // comes back in the completion
	Op    Op
	Flags Flags
	Local Region
	LOff  uint64 // bytes
	LLen  uint64 // bytes
	// Only Read and Write use Remote and ROff (bytes).
	Remote Key
	ROff   uint64
}

// A WC is the completion of a work request.
type WC struct {
	ID  uint64
	Op  Op
	Len uint32 // bytes moved; for a Recv, the length of the Send that consumed it
	Err error  // nil, or one of the errors of this package
}

// A Queue reports the completions of any number of endpoints. One goroutine uses it, but any goroutine may call Wake.
type Queue interface {
	// Poll copies completions to dst, oldest first, and returns their number. It never blocks.
	Poll(dst []WC) int
	// Wait returns nil once there is a completion, or once a peer has notified an endpoint of the queue since the
	// last Wait returned. It checks spin times before it sleeps. It may occasionally return nil without such a
	// reason.
	Wait(ctx context.Context, spin int) error
	// Wake makes the Wait under way, or else the next one, return nil. Any goroutine of this process may call it.
	Wake()
	Close() error
}

// A Listener takes connections that peers ask for. Its methods may be called by any goroutine.
type Listener interface {
	// Accept returns the next connection that a peer asks for.
	Accept(ctx context.Context) (Incoming, error)
	Addr() string
	Close() error
}

// An Incoming is a connection that a peer has asked for. The owner reads Hello first and decides which goroutine
// serves the peer, hence with which queues, and what to answer. It calls either Accept or Reject, once; the peer's
// Dial waits for that.
type Incoming interface {
	// Hello is what the peer gave to Dial, at most MaxHello bytes.
	Hello() []byte
	// Accept establishes the connection. The peer's Dial returns the answer, of at most MaxHello bytes.
	Accept(o EndpointOptions, answer []byte) (Endpoint, error)
	// Reject refuses the connection. The peer's Dial returns an error that is ErrRefused and contains the reason.
	Reject(reason string) error
}

// Timeout is how long an operation waits for a peer that does not answer, and how long a Send waits for a Recv.
const Timeout = time.Second

// MaxHello is the greatest length of a hello and of its answer, in bytes.
const MaxHello = 1024

// The errors of operations and endpoints. They are matched with errors.Is.
var (
	ErrAccess  = errors.New("fabric: outside the region, or without the right key, or fenced")
	ErrPeer    = errors.New("fabric: peer is gone")
	ErrTimeout = errors.New("fabric: no answer in time")
	ErrFlushed = errors.New("fabric: behind a failed operation")
	ErrAgain   = errors.New("fabric: queue is full, poll and try again")
	ErrClosed  = errors.New("fabric: closed")
	ErrRefused = errors.New("fabric: the peer refuses the connection")
	ErrInvalid = errors.New("fabric: a work request that makes no sense")
)
