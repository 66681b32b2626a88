package resp

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// Sizes of the input of a connection.
const (
	inputSize   = 16 << 10 // bytes of the buffer of a connection whose commands are small
	maxInline   = 64 << 10 // bytes of a command without lengths, as it is typed into telnet
	maxLength   = 32       // bytes of a line that holds a length
	maxArgs     = 1 << 20  // arguments of a command
	anonArgs    = 10       // number of arguments, before AUTH
	anonBulk    = 16 << 10
	maxDropped  = 512 << 20 // bytes of an argument, as in Redis: an argument that is longer than a value may be is dropped; beyond this size the connection ends
	bytesPerArg = 4         // the fewest bytes that an argument takes: $0, CR and LF, and CR and LF again take 6; a lower number keeps the check simple
)

// A protocolError is about input that is not RESP, or is more than a client may send. It ends the connection.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// A longError is about a command with an argument that is too long. The command is dropped; the connection goes on.
type longError struct{ long, most int }

func (e longError) Error() string {
	return fmt.Sprintf("an argument of %d bytes: this server takes values of up to %d bytes; store a larger one in several keys", e.long, e.most)
}

var errBuffers = errors.New("the server's memory for requests is in use; try again later")

// A budget bounds the bytes that the buffers of all connections take beyond their first size.
type budget struct {
	used atomic.Int64
	most int64
}

// take reserves n more bytes, or gives them back if n is negative.
func (b *budget) take(n int) bool {
	if b.used.Add(int64(n)) > b.most && n > 0 {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

// A reader parses commands in a connection's input. One goroutine uses it.
//
// Invariant: buf[r:w] has arrived and was not returned as a command. The state of a command that has arrived in part
// is kept relative to r, so that each byte is parsed once, however slowly the command arrives.
type reader struct {
	src        io.Reader
	buf        []byte
	r, w       int
	maxCommand int // bytes
	maxBulk    int // bytes of an argument
	budget     *budget
	anonymous  bool // the limits before AUTH hold

	long int // bytes of the command's longest argument that is longer than maxBulk; 0 if there is none
	drop int // bytes of such an argument that are still to come

	pos  int // parsed so far, from r
	left int // arguments that are still to come; 0 between commands
	bulk int // length of the next one; -1 if its line is still to come
	ends []span
	args [][]byte
}

// A span is the place of an argument, from r.
type span struct{ from, to int }

// fill reads more input. Arguments that next returned before are no longer valid. At the end of the input the error
// is io.EOF.
func (d *reader) fill() error {
	if d.r == d.w {
		d.r, d.w = 0, 0
		if len(d.buf) > inputSize && d.left == 0 {
			d.budget.take(inputSize - len(d.buf))
			d.buf = nil
		}
		if d.buf == nil {
			d.buf = make([]byte, inputSize)
		}
	}
	if d.w == len(d.buf) {
		if d.r > 0 {
			d.w = copy(d.buf, d.buf[d.r:d.w])
			d.r = 0
		} else if err := d.grow(); err != nil {
			return err
		}
	}
	n, err := d.src.Read(d.buf[d.w:])
	d.w += n
	if n > 0 {
		return nil // an error will come again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// grow doubles the buffer. One command fills it, and next has checked that this command may be larger.
func (d *reader) grow() error {
	size := min(2*len(d.buf), d.maxCommand+inputSize)
	if size <= len(d.buf) {
		return d.tooLarge()
	}
	if !d.budget.take(size - len(d.buf)) {
		return errBuffers
	}
	buf := make([]byte, size)
	copy(buf, d.buf)
	d.buf = buf
	return nil
}

// release gives the buffer back when the connection ends.
func (d *reader) release() {
	if len(d.buf) > inputSize {
		d.budget.take(inputSize - len(d.buf))
	}
	d.buf = nil
}

func (d *reader) tooLarge() error {
	return protocolError(fmt.Sprintf("command of more than %d bytes", d.maxCommand))
}

// next returns the next command that has arrived whole; ok is false if there is none. The arguments are valid until the next call of fill,
// the slice of them until the next call of next. An empty command has no arguments. After a longError the connection goes on.
func (d *reader) next() (args [][]byte, ok bool, err error) {
	if d.left == 0 {
		if d.r == d.w {
			return nil, false, nil
		}
		if d.buf[d.r] != '*' {
			return d.inline()
		}
		line, ok, err := d.line("invalid multibulk length")
		if !ok || err != nil {
			return nil, false, err
		}
		n, ok := parseInt(line[1:])
		switch {
		case !ok || n > maxArgs || n*bytesPerArg > int64(d.maxCommand):
			return nil, false, protocolError("invalid multibulk length")
		case d.anonymous && n > anonArgs:
			return nil, false, protocolError("unauthenticated multibulk length")
		case n <= 0:
			d.consume()
			return nil, true, nil
		}
		d.left, d.bulk, d.ends, d.long = int(n), -1, d.ends[:0], 0
	}
	for d.left > 0 {
		if !d.dropped() {
			return nil, false, nil
		}
		if d.bulk < 0 {
			line, ok, err := d.line("invalid bulk length")
			if !ok || err != nil {
				return nil, false, err
			}
			if len(line) == 0 || line[0] != '$' {
				return nil, false, protocolError(fmt.Sprintf("expected '$', got '%s'", first(line)))
			}
			n, ok := parseInt(line[1:])
			switch {
			case !ok || n < 0 || n > maxDropped:
				return nil, false, protocolError("invalid bulk length")
			case d.anonymous && n > anonBulk:
				return nil, false, protocolError("unauthenticated bulk length")
			case n > int64(d.maxBulk): // its bytes are dropped, and it is parsed as an empty argument
				d.long, d.drop, d.bulk = max(d.long, int(n)), int(n), 0
				continue
			case int64(d.pos)+n+2 > int64(d.maxCommand):
				return nil, false, d.tooLarge()
			}
			d.bulk = int(n)
		}
		end := d.pos + d.bulk
		if d.w-d.r < end+2 {
			return nil, false, nil
		}
		if d.buf[d.r+end] != '\r' || d.buf[d.r+end+1] != '\n' {
			return nil, false, protocolError("a bulk string does not end where its length says")
		}
		d.ends = append(d.ends, span{d.pos, end})
		d.pos, d.bulk = end+2, -1
		d.left--
	}
	d.args = d.args[:0]
	for _, s := range d.ends {
		d.args = append(d.args, d.buf[d.r+s.from:d.r+s.to:d.r+s.to])
	}
	d.consume()
	if d.long > 0 {
		return nil, true, longError{d.long, d.maxBulk}
	}
	return d.args, true, nil
}

// exceeds reports whether the command that has arrived in part has more arguments than that, or one of more bytes.
func (d *reader) exceeds(args, bytes int) bool {
	return d.left > 0 && (d.left+len(d.ends) > args || d.bulk > bytes || d.long > 0)
}

// dropped drops the bytes that have arrived of an argument that is too long, and reports whether that was all of it.
func (d *reader) dropped() bool {
	at := d.r + d.pos
	n := min(d.drop, d.w-at)
	d.w = at + copy(d.buf[at:], d.buf[at+n:d.w])
	d.drop -= n
	return d.drop == 0
}

func first(line []byte) string {
	if len(line) == 0 {
		return ""
	}
	return string(line[:1])
}

// consume ends a command.
func (d *reader) consume() {
	d.r += d.pos
	d.pos = 0
}

// line returns a short line that has arrived, without its end, and goes on after it.
func (d *reader) line(wrong protocolError) (line []byte, ok bool, err error) {
	rest := d.buf[d.r+d.pos : d.w]
	for i := range min(len(rest), maxLength) {
		if rest[i] == '\n' {
			if i == 0 || rest[i-1] != '\r' {
				return nil, false, wrong
			}
			d.pos += i + 1
			return rest[:i-1], true, nil
		}
	}
	if len(rest) >= maxLength {
		return nil, false, wrong
	}
	return nil, false, nil
}

// parseInt parses decimal numbers as Redis does: no plus, no leading zero, no spaces.
func parseInt(b []byte) (n int64, ok bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 19 || (b[0] == '0' && (len(b) > 1 || negative)) {
		return 0, false
	}
	var u uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	switch {
	case negative && u <= 1<<63:
		return -int64(u), true
	case u < 1<<63:
		return int64(u), !negative
	}
	return 0, false
}
