package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/hydra"
)

// A record of the demo: its key and value follow from its number and from how often it was written.
const (
	valueSize  = 100 // bytes
	perRequest = 100 // records of a batch, and of an MSET
	loaders    = 4   // goroutines of each way
)

// A span bounds how often a record was overwritten: at least as often as overwrites were acknowledged, at most as
// often as they were sent. Only the record's writer uses it until the kill.
type span struct{ acknowledged, sent uint32 }

func keyOf(n int) []byte { return fmt.Appendf(make([]byte, 0, 16), "user%012d", n) }

func valueOf(n int, version uint32) []byte {
	b := make([]byte, valueSize)
	binary.BigEndian.PutUint32(b, version)
	r := rand.NewPCG(uint64(n), uint64(version))
	for at := 4; at+8 <= valueSize; at += 8 {
		binary.LittleEndian.PutUint64(b[at:], r.Uint64())
	}
	return b
}

// load writes all records, the first half by RESP and the second half by the library. On a slow machine both halves
// are smaller.
func (d *demo) load(ctx context.Context) error {
	began := time.Now()
	half := d.records / 2
	byRESP, err := d.loadPart(0, half, func() (func(from, to int) error, func() error, error) {
		c, err := dialRESP(d.resp)
		if err != nil {
			return nil, nil, err
		}
		return func(from, to int) error { return c.mset(from, to) }, c.net.Close, nil
	})
	if err != nil {
		return err
	}
	respTook := time.Since(began)
	began = time.Now()
	byLibrary, err := d.loadPart(byRESP, byRESP+min(byRESP, d.records-half), func() (func(from, to int) error, func() error, error) {
		return func(from, to int) error {
			list := make([]hydra.Request, 0, perRequest)
			for n := from; n < to; n++ {
				list = append(list, hydra.Request{Kind: hydra.Put, Key: keyOf(n), Value: valueOf(n, 0)})
			}
			return d.client.Batch(ctx, list)
		}, func() error { return nil }, nil
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	fmt.Fprintf(d.out, "loaded %d records by RESP in %v (MSET of %d, %d connections), %d by the library in %v (batches of %d); each was synced before its acknowledgement\n",
		byRESP, respTook.Round(100*time.Millisecond), perRequest, loaders, byLibrary, took.Round(100*time.Millisecond), perRequest)
	if n := byRESP + byLibrary; n < d.records {
		fmt.Fprintf(d.out, "that is fewer than %d, which would take this machine more than %v\n", d.records, loadTime)
		d.records = n
	}
	d.writes = make([]span, d.records)
	return nil
}

// loadPart has loaders write the records of a range. It returns how many were loaded when half of loadTime was over.
func (d *demo) loadPart(from, to int, open func() (write func(from, to int) error, end func() error, err error)) (int, error) {
	var next atomic.Int64
	next.Store(int64(from))
	began := time.Now()
	var all sync.WaitGroup
	failed := make(chan error, loaders)
	for range loaders {
		all.Go(func() {
			write, end, err := open()
			if err != nil {
				failed <- err
				return
			}
			defer end()
			for time.Since(began) < loadTime/2 {
				at := int(next.Add(perRequest)) - perRequest
				if at >= to {
					return
				}
				if err := write(at, min(at+perRequest, to)); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	return min(int(next.Load()), to) - from, <-failed
}

// readers is the number of goroutines that read at the same time.
const readers = 2

// measure has readers GET random keys, by RESP if client is nil, and compares every value.
func (d *demo) measure(ctx context.Context, name string, keys int, client *hydra.Client, limit time.Duration) row {
	r := row{name: name}
	before, err := askStatus(ctx, d.dir, "")
	if err != nil {
		r.failed = err
		return r
	}
	var sided hydra.Stats
	if client != nil {
		sided = client.Stats()
	}
	began := time.Now()
	var count atomic.Int64
	failed := make(chan error, readers)
	for i := range readers {
		go func() { failed <- d.read(ctx, uint64(i), keys, client, began.Add(limit), &count) }()
	}
	for range readers {
		if err := <-failed; err != nil {
			r.failed = err
		}
	}
	r.took, r.n = time.Since(began), count.Load()
	after, err := askStatus(ctx, d.dir, "")
	if err != nil {
		r.failed = err
	}
	r.processor = after.Processor - before.Processor
	if client != nil {
		r.oneSided = client.Stats().OneSided - sided.OneSided
	}
	return r
}

func (d *demo) read(ctx context.Context, seed uint64, keys int, client *hydra.Client, end time.Time, count *atomic.Int64) error {
	rnd := rand.New(rand.NewPCG(seed, 1))
	var value []byte
	get := func(key []byte) (err error) { value, err = client.GetInto(ctx, key, value[:0]); return err }
	if client == nil {
		c, err := dialRESP(d.resp)
		if err != nil {
			return err
		}
		defer c.net.Close()
		get = func(key []byte) (err error) { value, err = c.get(key, value[:0]); return err }
	}
	for time.Now().Before(end) {
		for range 64 { // the clock is read seldom, so that the time to read it does not count
			n := rnd.IntN(keys)
			if err := get(keyOf(n)); err != nil {
				return err
			}
			if len(value) != valueSize || binary.BigEndian.Uint32(value) != 0 {
				return fmt.Errorf("record %d is %x", n, value)
			}
		}
		count.Add(64)
	}
	return nil
}

// overwrite starts writers, half of which use RESP, that repeatedly overwrite their own records, and kills the
// server while they do. It returns how many overwrites were acknowledged.
func (d *demo) overwrite(ctx context.Context) (int64, error) {
	const writers = 16
	var acknowledged atomic.Int64
	var all sync.WaitGroup
	refused := make(chan error, writers)
	var killed atomic.Bool
	for i := range writers {
		all.Go(func() {
			put := func(key, value []byte) error { _, err := d.client.Put(ctx, key, value); return err }
			if i%2 == 0 {
				c, err := dialRESP(d.resp)
				if err != nil {
					refused <- err
					return
				}
				defer c.net.Close()
				put = c.set
			}
			rnd := rand.New(rand.NewPCG(uint64(i), 2))
			for {
				n := rnd.IntN(d.records/writers)*writers + i
				w := &d.writes[n]
				w.sent++
				if err := put(keyOf(n), valueOf(n, w.sent)); err != nil {
					if !killed.Load() {
						refused <- err
					}
					return
				}
				w.acknowledged = w.sent
				acknowledged.Add(1)
			}
		})
	}
	time.Sleep(d.each)
	killed.Store(true)
	err := d.stop(os.Kill)
	all.Wait()
	close(refused)
	if rerr := <-refused; rerr != nil {
		err = rerr
	}
	return acknowledged.Load(), err
}

// compareAll reads all records. It returns how many of them have a value whose overwrite was sent, but not
// acknowledged, before the kill.
func (d *demo) compareAll(ctx context.Context) (later int, err error) {
	list := make([]hydra.Request, perRequest)
	for from := 0; from < d.records; from += perRequest {
		part := list[:min(perRequest, d.records-from)]
		for i := range part {
			part[i] = hydra.Request{Kind: hydra.Get, Key: keyOf(from + i)}
		}
		if err := d.client.Batch(ctx, part); err != nil {
			return later, fmt.Errorf("records from %d on: %w", from, err)
		}
		for i := range part {
			n, value := from+i, part[i].Item.Value
			w := d.writes[n]
			if len(value) != valueSize {
				return later, fmt.Errorf("record %d has %d bytes", n, len(value))
			}
			version := binary.BigEndian.Uint32(value)
			switch {
			case version < w.acknowledged || version > w.sent:
				return later, fmt.Errorf("record %d has version %d; %d was acknowledged and %d was sent", n, version, w.acknowledged, w.sent)
			case !bytes.Equal(value, valueOf(n, version)):
				return later, fmt.Errorf("record %d has version %d and not its bytes", n, version)
			case version > w.acknowledged:
				later++
			}
		}
	}
	return later, nil
}

// respConn is a client of Redis with the few commands that the demo needs.
type respConn struct {
	net net.Conn
	r   *bufio.Reader
	w   *bufio.Writer
}

func dialRESP(addr string) (*respConn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &respConn{c, bufio.NewReader(c), bufio.NewWriter(c)}, nil
}

func (c *respConn) send(args ...[]byte) error {
	fmt.Fprintf(c.w, "*%d\r\n", len(args))
	for _, a := range args {
		c.w.WriteByte('$')
		c.w.WriteString(strconv.Itoa(len(a)))
		c.w.WriteString("\r\n")
		c.w.Write(a)
		c.w.WriteString("\r\n")
	}
	return c.w.Flush()
}

// ok reads the answer OK.
func (c *respConn) ok() error {
	line, err := c.r.ReadString('\n')
	if err == nil && line != "+OK\r\n" {
		err = fmt.Errorf("RESP answers %q", line)
	}
	return err
}

func (c *respConn) set(key, value []byte) error {
	if err := c.send([]byte("SET"), key, value); err != nil {
		return err
	}
	return c.ok()
}

func (c *respConn) mset(from, to int) error {
	args := [][]byte{[]byte("MSET")}
	for n := from; n < to; n++ {
		args = append(args, keyOf(n), valueOf(n, 0))
	}
	if err := c.send(args...); err != nil {
		return err
	}
	return c.ok()
}

func (c *respConn) get(key, dst []byte) ([]byte, error) {
	if err := c.send([]byte("GET"), key); err != nil {
		return dst, err
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return dst, err
	}
	var n int
	if _, err := fmt.Sscanf(line, "$%d\r\n", &n); err != nil || n < 0 || n > hydra.MaxValue {
		return dst, fmt.Errorf("RESP answers %q", line)
	}
	b := append(dst, make([]byte, n+2)...)
	_, err = io.ReadFull(c.r, b[len(dst):])
	return b[:len(dst)+n], err
}
