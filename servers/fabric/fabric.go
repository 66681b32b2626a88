package fabric

import (
	"context"
	"errors"
	"time"
)

// A Domain is one process's use of one provider. It hands out memory that peers may reach, queues that report completions, and
// endpoints. All methods may be called by any goroutine.
type Domain interface {
	// Caps says what the provider can do.
	Caps() Caps
	// Alloc returns n bytes of zeroed, page-aligned memory outside the Go heap that peers may reach as far as a says.
	Alloc(n int, a Access) (Region, error)
	// NewQueue returns a queue for at least depth completions. Endpoints that share it together post no more than that at a time.
	NewQueue(depth int) (Queue, error)
	// Listen accepts connections at an address whose form is the provider's.
	Listen(addr string) (Listener, error)
	// Dial connects to an address at which a peer listens. The hello is shown to the peer, and the peer's own is returned.
	Dial(ctx context.Context, addr string, hello []byte, o EndpointOptions) (Endpoint, []byte, error)
	// Close ends all that came from the domain: listeners, endpoints, queues, regions.
	Close() error
}

// Caps are the limits of a provider.
type Caps struct {
	OneSided  bool // a peer's Read or Write needs no work of the owner's process
	MaxInline int  // most bytes of a Write or Send that may be posted with Inline
	MaxSend   int  // most bytes of a Send
}

// Access says what peers may do with a region. The owner may always load and store.
type Access uint8

// The rights of peers. Local memory that only takes part in this process's own operations needs none.
const (
	RemoteRead Access = 1 << iota
	RemoteWrite
)

// A Region is memory that operations can refer to.
type Region interface {
	// Bytes is the memory itself. It is valid until Close; to look at it later ends the process. What peers write is read with package
	// words.
	Bytes() []byte
	// Key is what a peer needs to reach the region.
	Key() Key
	// Fence ends the rights of all peers: when it returns, no operation of a peer on the region succeeds any more. Bytes stay readable
	// by the owner.
	Fence() error
	// Close fences the region, clears it and gives the memory back.
	Close() error
}

// A Key names a region to a peer. Whoever has a region's key can reach its memory, so it is handed only to peers that may. Its words
// mean something to the provider alone; it has no pointer of this process in it that a peer could use otherwise.
type Key struct {
	ID    uint64 // of the region, in its owner's domain
	Rkey  uint64 // drawn at random
	Nonce uint64 // drawn at random, of the owner's incarnation
	Base  uint64 // where the provider finds the first byte
	Len   uint64 // bytes
}

// An Endpoint is one end of a reliable connection. Post may be called by one goroutine at a time; the rest by any.
type Endpoint interface {
	// Post starts operations in the order given and returns how many were taken. With ErrAgain w[n:] were not; the caller polls the
	// queue and tries again. With an error that is ErrInvalid w[n] is wrong in itself, and nothing has happened to the endpoint. After
	// the endpoint has ended nothing is taken, and the error is that of Err. The slice may be used again at once, the memory that the
	// operations refer to once they are complete.
	//
	// An operation is under way, and counts for EndpointOptions.Depth and the depth of its queue, until its completion was polled;
	// without Signal, until that of a later one of its endpoint was.
	Post(w []WR) (n int, err error)
	// Peer says who is at the other end.
	Peer() Peer
	// Done is closed when the endpoint has ended, by Close or by its first failure; Err then says why, and is nil before. All operations
	// that were posted complete, those behind the first failure, and all that Close finds under way, with ErrFlushed; they have when Done
	// is closed. The peer's endpoint ends too.
	Done() <-chan struct{}
	Err() error
	Close() error
}

// A Reader is an Endpoint whose peer's memory any goroutine can read by itself, beside Post and other Readers, and without a queue: where a Read is a
// copy that the initiator makes, work requests and completions cost more than the copy.
type Reader interface {
	Endpoint
	// ReadNow copies len(dst) bytes at off of the peer's region to dst, which may be any memory, and returns when that is done. It
	// promises what a Read does. An error leaves the endpoint as it is: ErrAgain says that a Read of the region has to be posted first, and
	// any other one what such a Read would fail with.
	ReadNow(dst []byte, k Key, off uint64) error
}

// EndpointOptions are set when a connection is made.
type EndpointOptions struct {
	Send, Recv Queue // where the completions of Read, Write and Send, and of Recv, are reported; may be the same queue
	Depth      int   // most operations under way at a time; 0 for the provider's default
	Recvs      int   // most Recvs posted at a time; 0 for the provider's default
}

// Peer describes the other end of an endpoint.
type Peer struct {
	Addr        string
	Incarnation uint64 // drawn at random by the peer's domain when it was opened
}

// Op is what a work request asks for.
type Op uint8

// The operations. Read and Write move Local[LOff:LOff+LLen] from or to the peer's memory at ROff of the region with key Remote. A Read or
// Write of no bytes looks neither at Local nor at Remote; a Write of no bytes with Notify is a bell. A Send takes one Recv of the peer,
// and fails with ErrAccess if that has less room than the Send has bytes; a Recv always has a completion.
const (
	Read Op = 1 + iota
	Write
	Send
	Recv
)

// Flags of a work request.
type Flags uint8

const (
	// Signal asks for a completion. An operation without it is complete when a later one of its endpoint with it is. A failure is
	// reported all the same.
	Signal Flags = 1 << iota
	// Notify wakes the peer once the Write has been placed: the queue of its endpoint's Recv.
	Notify
	// Inline takes the bytes during Post: the memory may be used again as soon as that returns. At most Caps.MaxInline bytes.
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
	// Remote and ROff (bytes) are of Read and Write only.
	Remote Key
	ROff   uint64
}

// A WC is the completion of a work request.
type WC struct {
	ID  uint64
	Op  Op
	Len uint32 // bytes moved; of a Recv, those of the Send that it took
	Err error  // nil, or one of the errors of this package
}

// A Queue reports completions of any number of endpoints. One goroutine uses it, Wake apart.
type Queue interface {
	// Poll takes completions, as many as there are and fit. It never blocks.
	Poll(dst []WC) int
	// Wait returns nil as soon as there is a completion, or a peer has notified an endpoint of the queue since the last Wait returned.
	// It looks spin times before it sleeps. It may now and then return nil without such a reason.
	Wait(ctx context.Context, spin int) error
	// Wake makes the Wait that is under way, or else the next one, return nil. Any goroutine of this process may call it.
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

// An Incoming is a connection that a peer has asked for. The owner reads the hello first: it decides who serves the peer, hence with
// which queues, and what the answer is. One of Accept and Reject is called, once; the peer's Dial waits for it.
type Incoming interface {
	// Hello is what the peer gave to Dial, at most MaxHello bytes.
	Hello() []byte
	// Accept makes the connection. The answer, at most MaxHello bytes, is returned by the peer's Dial.
	Accept(o EndpointOptions, answer []byte) (Endpoint, error)
	// Reject refuses it. The peer's Dial returns an error that is ErrRefused and shows the reason.
	Reject(reason string) error
}

// Timeout is how long an operation waits for a peer that does not answer, and a Send for a Recv.
const Timeout = time.Second

// MaxHello is the most bytes of a hello and of its answer.
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
