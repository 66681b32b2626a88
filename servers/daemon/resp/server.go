package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/hydra"
)

// A Store has the calls of the client library that the commands need; *hydra.Client is one.
type Store interface {
	GetInto(ctx context.Context, key, dst []byte) ([]byte, error)
	GetItem(ctx context.Context, key []byte) (hydra.Item, error)
	Put(ctx context.Context, key, value []byte, e ...hydra.Expiry) (uint64, error)
	CompareAndSet(ctx context.Context, key []byte, old uint64, value []byte, e ...hydra.Expiry) (uint64, error)
	CompareAndDelete(ctx context.Context, key []byte, old uint64) error
	Batch(ctx context.Context, list []hydra.Request) error
	ScanPage(ctx context.Context, cursor uint64, o *hydra.ScanOptions) ([]hydra.Entry, uint64, bool, error)
}

// Config is copied by NewServer.
type Config struct {
	Password     string        // of the user "default"; empty: clients need no password
	TLS          *tls.Config   // nil: none
	MaxClients   int           // connections; 0: 10,000
	MaxCommand   int           // bytes of a command; 0: 64 MiB
	MaxBuffers   int64         // bytes of all connections' buffers beyond 16 KiB each; 0: 512 MiB
	WriteTimeout time.Duration // for a client that does not read its answers, or three quarters of it; 0: 30 s
	// Settings are further answers to CONFIG GET.
	Settings map[string]string
	// Evicts says that the store drops items that were not used for long. It may drop a part of a long value; the
	// value is then absent.
	Evicts bool
	// Transactions make MSET and MGET atomic transactions of all their keys; nil: each key is set and read by itself.
	Transactions Transactions
	// Facts are further lines of INFO, by section.
	Facts func() []Section
}

// Transactions write, or read, several keys at once.
type Transactions interface {
	// SetAll sets keys. args alternates keys and values.
	SetAll(ctx context.Context, args [][]byte) error
	// GetAll reads keys. It calls got for each key in order; value is nil if the key is absent.
	GetAll(ctx context.Context, keys [][]byte, got func(value []byte)) error
}

// A Section is a part of INFO.
type Section struct {
	Name  string
	Lines []Fact
}

// A Fact is a line of INFO.
type Fact struct{ Name, Value string }

// A Server serves any number of listeners.
type Server struct {
	store   Store
	o       Config
	began   time.Time
	ctx     context.Context // of the calls of all connections, until Close
	cancel  context.CancelFunc
	budget  budget
	stats   stats
	calls   []atomic.Int64 // of each command
	running sync.WaitGroup // connections

	mu        sync.Mutex // guards the fields below; no lock but a socket's is taken while it is held
	loop      *loop      // nil before Serve, and if there is none
	closing   bool
	lastID    int64
	conns     map[*conn]struct{}
	listeners map[net.Listener]struct{}
}

// stats are counters of all connections.
type stats struct {
	accepted, rejected atomic.Int64
	failed             atomic.Int64 // commands answered with an error
	broken             atomic.Int64 // connections ended by a protocol error
	in, out            atomic.Int64 // bytes
}

// NewServer returns a server of the keys of a store, which the caller closes after the server.
func NewServer(store Store, o Config) *Server {
	o.MaxClients = cmp.Or(o.MaxClients, 10_000)
	o.MaxCommand = cmp.Or(o.MaxCommand, 64<<20)
	o.MaxBuffers = cmp.Or(o.MaxBuffers, 512<<20)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
	s := &Server{store: store, o: o, began: time.Now(), conns: map[*conn]struct{}{}, listeners: map[net.Listener]struct{}{}}
	s.calls = make([]atomic.Int64, len(commands))
	s.budget.most = o.MaxBuffers
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// ErrClosed is what Serve returns after Close or Shutdown.
var ErrClosed = errors.New("resp: server is closed")

// Serve serves the connections of a listener, and closes the listener in the end. Many listeners can be served at
// once.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return ErrClosed
	}
	s.listeners[l] = struct{}{}
	if s.loop == nil {
		s.loop = newLoop(s)
	}
	s.mu.Unlock()
	for pause := time.Millisecond; ; {
		nc, err := l.Accept()
		if err == nil {
			pause = time.Millisecond
			s.accept(nc)
			continue
		}
		if s.ended() {
			return ErrClosed
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		// There were too many open files, or the connection had already ended: neither lasts.
		time.Sleep(pause)
		pause = min(2*pause, time.Second)
	}
}

func (s *Server) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// accept starts a connection, or refuses it.
func (s *Server) accept(nc net.Conn) {
	s.mu.Lock()
	refused := s.closing || len(s.conns) >= s.o.MaxClients
	var c *conn
	if !refused {
		var r *raw
		if s.loop != nil {
			if r = s.loop.adopt(nc); r != nil {
				nc = r
			}
		}
		s.lastID++
		c = newConn(s, nc, s.lastID)
		c.lp.raw = r
		s.conns[c] = struct{}{}
		s.running.Add(1)
	}
	s.mu.Unlock()
	if refused {
		s.stats.rejected.Add(1)
		nc.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		if s.o.TLS == nil {
			nc.Write([]byte("-ERR max number of clients reached\r\n"))
		}
		nc.Close()
		return
	}
	s.stats.accepted.Add(1)
	if c.lp.raw != nil {
		s.loop.push(c)
		return
	}
	go func() {
		defer s.gone(c)
		c.serve()
	}()
}

// gone forgets a connection that has ended.
func (s *Server) gone(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.running.Done()
}

// Shutdown accepts no more connections and lets the present ones finish the commands that have arrived. When the
// context ends, it closes the remaining connections.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop(func(c *conn) { c.net.SetReadDeadline(time.Now()) })
	done := make(chan struct{})
	go func() {
		s.wait()
		close(done)
	}()
	select {
	case <-done:
		s.cancel()
		return nil
	case <-ctx.Done():
		s.Close()
		return ctx.Err()
	}
}

// Close ends all connections.
func (s *Server) Close() error {
	s.cancel()
	s.stop(func(c *conn) { c.net.Close() })
	s.wait()
	return nil
}

// wait waits for the connections, and ends the loop.
func (s *Server) wait() {
	s.running.Wait()
	s.mu.Lock()
	l := s.loop
	s.loop = nil
	s.mu.Unlock()
	if l != nil {
		l.close()
	}
}

func (s *Server) stop(end func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	if s.loop != nil {
		s.loop.stop()
	}
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		end(c)
	}
}

// Connections returns the number of connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Counters count the work of a server since NewServer.
type Counters struct {
	Commands           map[string]int64 // served, by name; commands that were never called are included
	Accepted, Rejected int64            // connections
	Errors             int64            // answers that were errors
	ProtocolErrors     int64            // connections that were ended because of protocol errors
	BytesIn, BytesOut  int64
	BufferBytes        int64 // of the buffers of connections, beyond 16 KiB each
}

// Counters returns the counters.
func (s *Server) Counters() Counters {
	c := Counters{
		Commands: map[string]int64{}, Accepted: s.stats.accepted.Load(), Rejected: s.stats.rejected.Load(), Errors: s.stats.failed.Load(),
		ProtocolErrors: s.stats.broken.Load(), BytesIn: s.stats.in.Load(), BytesOut: s.stats.out.Load(), BufferBytes: s.budget.used.Load(),
	}
	for name, x := range commands {
		c.Commands[name] = s.calls[x.index].Load()
	}
	return c
}
