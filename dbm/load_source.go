package dbm

import (
	"context"
	"errors"
	"iter"
	"runtime/debug"

	"flashdbm/mvcc"
)

// loadSource runs an iterator in a goroutine of its own, which copies the records into chunks. next returns the
// chunks to the loader.
type loadSource struct {
	ctx      context.Context
	engine   *mvcc.Engine
	full     chan *loadedChunk // closed by the goroutine when it ends
	empty    chan *loadedChunk
	quit     chan struct{}  // closed by stop
	now      *loadedChunk   // the chunk that the last call of next returned; the following call reuses it
	pushed   []*loadedChunk // chunks that next returns before those from the channel full: see unread
	gap      int            // bytes before each key in a chunk: room for the prefix of a keyspace
	most     int            // a chunk with this many bytes is full
	err      error          // why the iterator ended early. This and the following fields are written before full is closed and read after that
	panicked any
	whole    bool // the iterator has returned
}

// loadedChunk is a list of records. bytes holds their keys and values, concatenated.
type loadedChunk struct {
	bytes   []byte
	lengths []loadLengths
	records []mvcc.LoadRecord
}

type loadLengths struct{ key, value int }

var (
	errLoadEnded  = errors.New("flashdbm: the records of Load ended by runtime.Goexit")
	errLoadPanics = errors.New("flashdbm: the records of Load panicked")
)

const loadChunks = 4 // chunks in all: being filled, waiting in full, or with the loader

// startLoad starts the goroutine. row is the number of bytes of a row; 0 if the loader does not load in rows. A loader
// of rows holds the chunks of one row while the iterator fills those of the next.
func startLoad(ctx context.Context, e *mvcc.Engine, records iter.Seq2[[]byte, []byte], row int) *loadSource {
	chunks, gap, most := loadChunks, 0, loadChunk
	if row > 0 {
		most = min(loadChunk, row)
		chunks, gap = loadChunks+2*(row/most+1), mostPrefix
	}
	s := &loadSource{ctx: ctx, engine: e, full: make(chan *loadedChunk, chunks), empty: make(chan *loadedChunk, chunks), quit: make(chan struct{}), gap: gap, most: most}
	for range chunks {
		s.empty <- &loadedChunk{}
	}
	go s.run(records)
	return s
}

// run runs the iterator. A memory fault on the mapping becomes an error, as in Tx.call; a fault on memory that the
// iterator yields is a panic, as in Put.
func (s *loadSource) run(records iter.Seq2[[]byte, []byte]) {
	defer close(s.full)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if s.whole || s.err != nil {
			return
		}
		r := recover()
		if fault, ok := s.engine.AsFault(r); ok {
			s.err = s.engine.Fail(fault)
		} else if s.panicked = r; r != nil {
			s.err = errLoadPanics
		} else {
			s.err = errLoadEnded
		}
	}()
	c := s.take()
	for key, value := range records {
		if c == nil {
			break
		}
		if s.err = checkSizes(key, value); s.err != nil {
			break
		}
		c.bytes = append(append(append(c.bytes, zeroPrefix[:s.gap]...), key...), value...)
		c.lengths = append(c.lengths, loadLengths{len(key), len(value)})
		if len(c.bytes) >= s.most {
			if !s.give(c) {
				break
			}
			c = s.take()
		}
	}
	if s.err == nil && c != nil && len(c.lengths) > 0 {
		s.give(c)
	}
	s.whole = true
}

// take returns a chunk to be filled, or nil after stop.
func (s *loadSource) take() *loadedChunk {
	select {
	case c := <-s.empty:
		c.bytes, c.lengths, c.records = c.bytes[:0], c.lengths[:0], c.records[:0]
		return c
	case <-s.quit:
		return nil
	}
}

func (s *loadSource) give(c *loadedChunk) bool {
	c.list(s.gap, nil)
	select {
	case s.full <- c:
		return true
	case <-s.quit:
		return false
	}
}

// list lists the records of a chunk. There are gap bytes before each key; the last of them are set to the
// prefix and become a part of the key.
func (c *loadedChunk) list(gap int, prefix []byte) {
	c.records = c.records[:0]
	at := 0
	for _, n := range c.lengths {
		at += gap
		value := at + n.key
		from := at - copy(c.bytes[at-len(prefix):at], prefix)
		c.records = append(c.records, mvcc.LoadRecord{Key: c.bytes[from:value:value], Value: c.bytes[value : value+n.value : value+n.value]})
		at = value + n.value
	}
}

// next is the mvcc.LoadSource. A chunk is valid until the next call.
func (s *loadSource) next() ([]mvcc.LoadRecord, error) {
	c, err := s.nextChunk()
	if c == nil || err != nil {
		return nil, err
	}
	s.now = c
	return c.records, nil
}

// nextChunk returns the next chunk, nil at the end. It takes back the chunk that the last call of
// next returned.
func (s *loadSource) nextChunk() (*loadedChunk, error) {
	if s.now != nil {
		s.empty <- s.now
		s.now = nil
	}
	if len(s.pushed) > 0 {
		c := s.pushed[0]
		s.pushed = s.pushed[1:]
		return c, nil
	}
	select {
	case c, ok := <-s.full:
		if !ok {
			return nil, s.err
		}
		return c, nil
	case <-s.ctx.Done(): // other commits wait for Load, perhaps longer than the iterator takes to notice ctx
		return nil, context.Cause(s.ctx)
	}
}

// row returns chunks with at least the given number of bytes in total. At the end of the records it returns what is
// left, and whole is true. The chunks are valid until they are passed to used or unread.
func (s *loadSource) row(bytes int) (chunks []*loadedChunk, whole bool, err error) {
	for n := 0; n < bytes; {
		c, err := s.nextChunk()
		if s.ctx.Err() != nil { // checked at the end too, because a source that fails cancels the context and then ends
			return chunks, false, context.Cause(s.ctx)
		}
		if c == nil || err != nil {
			return chunks, err == nil, err
		}
		chunks = append(chunks, c)
		n += len(c.bytes)
	}
	return chunks, false, nil
}

// used takes back chunks that row returned.
func (s *loadSource) used(chunks []*loadedChunk) {
	for _, c := range chunks {
		s.empty <- c
	}
}

// unread makes next return again the chunks that row returned.
func (s *loadSource) unread(chunks []*loadedChunk) { s.pushed = chunks }

// stop makes the goroutine end, and returns when it has ended.
func (s *loadSource) stop() {
	close(s.quit)
	for range s.full {
	}
}
