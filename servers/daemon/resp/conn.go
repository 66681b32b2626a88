package resp

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"time"
)

// handshakeTimeout is how long a client may take for the TLS handshake.
const handshakeTimeout = 10 * time.Second

// A conn is the connection of one client. Only its goroutine uses it, except for the fields that say otherwise.
type conn struct {
	s     *Server
	net   net.Conn // Close, deadlines and addresses: any goroutine that holds s.mu, with which it changes
	id    int64
	began time.Time

	in    reader
	out   writer
	batch batch
	value []byte // a value on its way from the store to out
	quit  bool
	lp    looped

	known bool                   // the client has given the password, or needs none
	name  atomic.Pointer[string] // of CLIENT SETNAME
}

func newConn(s *Server, nc net.Conn, id int64) *conn {
	c := &conn{s: s, net: nc, id: id, began: time.Now()}
	c.known = s.o.Password == ""
	c.name.Store(new(string))
	c.in = reader{maxCommand: s.o.MaxCommand, maxBulk: s.o.maxBulk(), budget: &s.budget, anonymous: !c.known}
	return c
}

// serve reads commands until the connection ends.
func (c *conn) serve() {
	defer c.net.Close()
	defer c.in.release()
	nc := direct(c.net)
	c.in.src, c.out.dst = input{c.s, nc}, &output{s: c.s, net: nc}
	if c.s.o.TLS != nil {
		t := tls.Server(c.net, c.s.o.TLS)
		c.net.SetDeadline(time.Now().Add(handshakeTimeout))
		if t.HandshakeContext(c.s.ctx) != nil {
			c.s.stats.broken.Add(1)
			return
		}
		c.net.SetDeadline(time.Time{})
		if c.s.ended() {
			return // the deadline that was just removed may have been Shutdown's
		}
		c.in.src, c.out.dst = input{c.s, t}, &output{s: c.s, net: t}
		defer t.Close()
	}
	c.serveInput(nil)
}

// goOn is serve for a connection that was in the loop. It begins with first, unless that is nil, or ends with err.
func (c *conn) goOn(first func(), err error) {
	defer c.net.Close()
	defer c.in.release()
	nc := direct(c.net)
	c.in.src, c.out.dst = input{c.s, nc}, &output{s: c.s, net: nc}
	if first != nil {
		first()
		c.out.bounded()
	}
	if held := c.lp.held; held != nil {
		c.do(held)
		c.out.bounded()
	}
	c.serveInput(err)
}

func (c *conn) serveInput(err error) {
	for {
		if err == nil {
			err = c.serveArrived()
		}
		c.runBatch()
		if err == nil && !c.quit {
			if c.s.o.Transactions != nil {
				// A transaction takes so long that other connections become ready while it runs. This lets them run
				// first: the answers of all then go out one after another, and a client that has several connections is
				// woken once for all of them.
				runtime.Gosched()
			}
			c.out.flush()
			err = c.in.fill()
		}
		if c.ending(err) {
			return
		}
	}
}

// ending reports whether the connection ends, with an error of its input or without. Then it sends the last answers.
func (c *conn) ending(err error) bool {
	if isAnswered(err) {
		c.s.stats.broken.Add(1)
		c.out.fail("ERR " + err.Error())
	}
	if err != nil || c.quit || c.out.err != nil {
		c.out.flush()
		return true
	}
	return false
}

// isAnswered reports whether an error of the input is answered before the connection ends.
func isAnswered(err error) bool {
	var wrong protocolError
	return errors.As(err, &wrong) || errors.Is(err, errBuffers)
}

// serveArrived serves all commands that have arrived whole. The last ones may still be in the batch.
func (c *conn) serveArrived() error {
	for !c.quit && c.out.err == nil {
		args, ok, err := c.in.next()
		if long, is := err.(longError); is {
			c.fail("ERR " + long.Error())
			continue
		}
		if !ok || err != nil {
			return err
		}
		if len(args) > 0 {
			c.do(args)
			c.out.bounded()
		}
	}
	return nil
}

// input and output count bytes, and bound how long a write takes.
type (
	input struct {
		s   *Server
		net net.Conn
	}
	output struct {
		s     *Server
		net   net.Conn
		until time.Time // the connection's deadline for writes
	}
)

func (i input) Read(b []byte) (int, error) {
	n, err := i.net.Read(b)
	i.s.stats.in.Add(int64(n))
	return n, err
}

func (o *output) Write(b []byte) (int, error) {
	if now := time.Now(); o.until.Sub(now) < o.s.o.WriteTimeout/4*3 { // setting the deadline takes longer than reading the clock
		o.until = now.Add(o.s.o.WriteTimeout)
		o.net.SetWriteDeadline(o.until)
	}
	n, err := o.net.Write(b)
	o.s.stats.out.Add(int64(n))
	return n, err
}

// authenticate checks a user's name and password. It takes the same time for all wrong ones.
func (c *conn) authenticate(user, password []byte) bool {
	want, got := sha256.Sum256([]byte(c.s.o.Password)), sha256.Sum256(password)
	ok := subtle.ConstantTimeCompare(want[:], got[:]) == 1
	if string(user) != "default" || !ok {
		return false
	}
	c.known, c.in.anonymous = true, false
	return true
}
