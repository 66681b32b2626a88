package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/ramp"
	"flashdbm/servers/wire"
)

// A system is one way to make transactions.
type system struct {
	name string
	addr int // of the server: 0 shared memory, 1 TCP
	o    ramp.Options
	c    *ramp.Client
}

// The systems, by name.
const (
	socket   = "socket"
	sends    = "Send/Recv"
	getPlus  = "GET+"
	getStar  = "GET*"
	locking  = "two-phase locking"
	small    = "RAMP-Small"
	hybrid   = "RAMP-Hybrid"
	lockRing = "two-phase locking, ring"
	lockSend = "two-phase locking, Send/Recv"
	smallTCP = "RAMP-Small, socket"
	smallSnd = "RAMP-Small, Send/Recv"
	hybrdTCP = "RAMP-Hybrid, socket"
	hybrdSnd = "RAMP-Hybrid, Send/Recv"
)

func systems() []*system {
	return []*system{
		{name: socket, addr: 1, o: ramp.Options{Slots: -1, Carrier: wire.CarrierSend}},
		{name: sends, o: ramp.Options{Slots: -1, Carrier: wire.CarrierSend}},
		{name: getPlus, o: ramp.Options{Slots: -1}},
		{name: getStar, o: ramp.Options{}},
		{name: locking, addr: 1, o: ramp.Options{Locking: true, Slots: -1, Carrier: wire.CarrierSend}},
		{name: lockRing, o: ramp.Options{Locking: true, Slots: -1}},
		{name: small, o: ramp.Options{Algorithm: ramp.Small, Slots: -1}},
		{name: hybrid, o: ramp.Options{Algorithm: ramp.Hybrid, Slots: -1}},
		{name: lockSend, o: ramp.Options{Locking: true, Slots: -1, Carrier: wire.CarrierSend}},
		{name: smallTCP, addr: 1, o: ramp.Options{Algorithm: ramp.Small, Slots: -1, Carrier: wire.CarrierSend}},
		{name: smallSnd, o: ramp.Options{Algorithm: ramp.Small, Slots: -1, Carrier: wire.CarrierSend}},
		{name: hybrdTCP, addr: 1, o: ramp.Options{Algorithm: ramp.Hybrid, Slots: -1, Carrier: wire.CarrierSend}},
		{name: hybrdSnd, o: ramp.Options{Algorithm: ramp.Hybrid, Slots: -1, Carrier: wire.CarrierSend}},
	}
}

// bench is a run.
type bench struct {
	s       settings
	server  int // process ID
	systems map[string]*system
	failed  atomic.Pointer[error]
}

func (b *bench) open(addrs []string) error {
	b.systems = map[string]*system{}
	for _, x := range systems() {
		var err error
		if x.c, err = ramp.Dial(context.Background(), []string{addrs[x.addr]}, &x.o); err != nil {
			return err
		}
		b.systems[x.name] = x
	}
	return nil
}

func (b *bench) close() {
	for _, x := range b.systems {
		x.c.Close()
	}
}

func keyOf(i int) []byte { return fmt.Appendf(nil, "user%012d", i) }

// load writes all records in transactions of 4 keys.
func (b *bench) load(x *system, size int) error {
	v := make([]byte, b.s.value)
	for i := 0; i < b.s.records; i += size {
		var pairs []ramp.Pair
		for j := i; j < min(i+size, b.s.records); j++ {
			pairs = append(pairs, ramp.Pair{Key: keyOf(j), Value: v})
		}
		if _, err := x.c.PutAll(context.Background(), pairs); err != nil {
			return err
		}
	}
	return nil
}

// A cell is a measurement: a system and its work.
type cell struct {
	system string
	size   int     // keys of a transaction
	reads  float64 // share of transactions that read
	draw   draw
}

// A result has the figures of a cell in one round.
type result struct {
	txns, reads                  int64
	messages, oneSided, repaired uint64
	retries                      uint64
	seconds                      float64
	server, client               float64 // processor time in seconds
}

func (r *result) perSecond() float64   { return float64(r.txns) / r.seconds }
func (r *result) micros() float64      { return 1e6 * (r.server + r.client) / float64(r.txns) }
func (r *result) perTxn() float64      { return float64(r.messages) / float64(r.txns) }
func (r *result) serverShare() float64 { return 1e6 * r.server / float64(r.txns) }

// measure runs a cell for a time.
func (b *bench) measure(c *cell, each time.Duration) (r result) {
	x := b.systems[c.system]
	if err := b.warm(x, c); err != nil {
		b.failed.CompareAndSwap(nil, &err)
		return r
	}
	b.work(c, each/5, nil)
	before, server, client, began := x.c.Stats(), processTime(b.server), ownTime(), time.Now()
	b.work(c, each, &r)
	after := x.c.Stats()
	r.seconds = time.Since(began).Seconds()
	r.server, r.client = processTime(b.server)-server, ownTime()-client
	r.messages, r.oneSided = after.Messages-before.Messages, after.OneSided-before.OneSided
	r.repaired, r.retries = after.Repaired-before.Repaired, after.Retries-before.Retries
	return r
}

// warm has each system read all records before the measurement: the first reads bring the pointers.
func (b *bench) warm(x *system, c *cell) error {
	for i := 0; c.reads > 0 && i < b.s.records; i += c.size {
		var keys [][]byte
		for j := i; j < min(i+c.size, b.s.records); j++ {
			keys = append(keys, keyOf(j))
		}
		if _, err := x.c.GetAll(context.Background(), keys); err != nil {
			return fmt.Errorf("%s: %w", c.system, err)
		}
	}
	return nil
}

func (b *bench) work(c *cell, each time.Duration, r *result) {
	x := b.systems[c.system]
	end := time.Now().Add(each)
	var wait sync.WaitGroup
	for g := range b.s.goroutines {
		wait.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), uint64(end.UnixNano())))
			value := make([]byte, b.s.value)
			keys, pairs := make([][]byte, c.size), make([]ramp.Pair, c.size)
			ctx := context.Background()
			for time.Now().Before(end) && b.failed.Load() == nil {
				read := rnd.Float64() < c.reads
				chosen := map[int]bool{}
				for i := 0; i < c.size; {
					k := c.draw.next(rnd)
					if chosen[k] {
						continue // a transaction has each key once
					}
					chosen[k] = true
					keys[i] = keyOf(k)
					pairs[i] = ramp.Pair{Key: keys[i], Value: value}
					i++
				}
				var err error
				if read {
					_, err = x.c.GetAll(ctx, keys)
				} else {
					_, err = x.c.PutAll(ctx, pairs)
				}
				if err != nil {
					err = fmt.Errorf("%s: %w", c.system, err)
					b.failed.CompareAndSwap(nil, &err)
					return
				}
				if r != nil {
					atomic.AddInt64(&r.txns, 1)
					if read {
						atomic.AddInt64(&r.reads, 1)
					}
				}
			}
		})
	}
	wait.Wait()
}
