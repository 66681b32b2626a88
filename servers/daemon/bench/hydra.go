package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/hydra"
	"flashdbm/servers/wire"
)

// The sizes of the measurements of HydraDB, figures 9 to 11 of its paper. Keys have 16 bytes and values 32; clients
// is the number of goroutines, all in one process.
const (
	clients   = 50
	pipeline  = 16 // commands under way on each connection of the pipelined rival
	valueSize = 32
)

// hydraKey returns "user" and 12 digits. It takes a tenth of the time that a Read takes.
func hydraKey(b []byte, i int) []byte {
	b = append(b[:0], "user000000000000"...)
	for at := len(b) - 1; i > 0; at, i = at-1, i/10 {
		b[at] += byte(i % 10)
	}
	return b
}

// A rival is a store with its process. Each of the clients goroutines calls its operations through a session of its
// own.
type rival struct {
	name    string
	pids    []int
	load    func(records int) error
	session func() (session, error)
	stats   func() hydra.Stats // nil: the rival has no statistics
}

// A session makes one operation after the other; with a pipeline it makes several at once.
type session interface {
	depth() int // operations of one call
	do(ops []op) error
	Close() error
}

type op struct {
	key    []byte
	update bool
}

var theValue = make([]byte, valueSize)

// A workload has the share of reads and the distribution from which records are drawn.
type workload struct {
	reads float64
	draw  draw
	drawn []uint32 // records in the order in which draw has drawn them
}

// draws is the number of records that are drawn before a workload is measured. Each goroutine goes through them again
// and again, from a place of its own. To draw a record by the Zipfian distribution takes a fifth of the time of a GET
// by a Read.
const draws = 1 << 20

func (w *workload) drawRecords() {
	rnd := rand.New(rand.NewPCG(1, 2))
	w.drawn = make([]uint32, draws)
	for i := range w.drawn {
		w.drawn[i] = uint32(w.draw.next(rnd))
	}
}

func (w *workload) String() string { return fmt.Sprintf("%.0f %% GET, %s", 100*w.reads, w.draw.name()) }

// workloads returns those whose names contain rows.
func workloads(records int, rows string) (list []workload) {
	for _, d := range []draw{newScrambled(records), uniform{records}} {
		for _, reads := range []float64{0.5, 0.9, 1} {
			if w := (workload{reads: reads, draw: d}); strings.Contains(w.String(), rows) {
				list = append(list, w)
			}
		}
	}
	return list
}

// A turn has the figures of a rival in one round.
type turn struct {
	ops, messages, oneSided, refused uint64
	seconds, server, client          float64
	p50, p99                         time.Duration // of a session's call
}

func (r *turn) perSecond() float64 { return float64(r.ops) / r.seconds }
func (r *turn) micros() float64    { return 1e6 * (r.server + r.client) / float64(max(r.ops, 1)) }

// measureRival runs a workload for a time. In figure 9 a client has many goroutines; in the paper one process has one
// connection.
func measureRival(v *rival, w *workload, each time.Duration) (r turn, err error) {
	sessions := make([]session, clients)
	for i := range sessions {
		if sessions[i], err = v.session(); err != nil {
			return r, fmt.Errorf("%s: %w", v.name, err)
		}
		defer sessions[i].Close()
	}
	// The pointers of rarely read keys have expired while the other rivals were measured. A client that runs without
	// a pause has them.
	if _, err = work(sessions, w, each); err != nil {
		return r, fmt.Errorf("%s: %w", v.name, err)
	}
	var before, after hydra.Stats
	if v.stats != nil {
		before = v.stats()
	}
	server, client, began := serverTime(v), ownTime(), time.Now()
	taken, err := work(sessions, w, each)
	r.seconds = time.Since(began).Seconds()
	r.server, r.client = serverTime(v)-server, ownTime()-client
	if v.stats != nil {
		after = v.stats()
		r.messages, r.oneSided, r.refused = after.Messages-before.Messages, after.OneSided-before.OneSided, after.Refused-before.Refused
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", v.name, err)
	}
	r.ops = taken.ops
	slices.Sort(taken.times)
	if n := len(taken.times); n > 0 {
		r.p50, r.p99 = taken.times[n/2], taken.times[n*99/100]
	}
	if v.stats == nil {
		r.messages = r.ops
	}
	return r, nil
}

func serverTime(v *rival) (sum float64) {
	for _, pid := range v.pids {
		sum += processTime(pid)
	}
	return sum
}

type taken struct {
	ops   uint64
	times []time.Duration // durations of all sampled calls
}

// One of sampled calls is timed: two readings of the clock take as long as a Read.
const sampled = 16

func work(sessions []session, w *workload, each time.Duration) (all taken, err error) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	var stop atomic.Bool
	time.AfterFunc(each, func() { stop.Store(true) })
	for g, s := range sessions {
		wait.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), rand.Uint64()))
			at := rnd.IntN(draws)
			ops := make([]op, s.depth())
			var mine taken
			var failed error
			for n := g; !stop.Load() && failed == nil; n++ {
				for i := range ops {
					ops[i].key = hydraKey(ops[i].key, int(w.drawn[at%draws]))
					at++
					ops[i].update = w.reads < 1 && rnd.Float64() >= w.reads
				}
				if n%sampled == 0 {
					began := time.Now()
					failed = s.do(ops)
					mine.times = append(mine.times, time.Since(began))
				} else {
					failed = s.do(ops)
				}
				mine.ops += uint64(len(ops))
			}
			mu.Lock()
			defer mu.Unlock()
			all.ops += mine.ops
			all.times = append(all.times, mine.times...)
			err = errors.Join(err, failed)
		})
	}
	wait.Wait()
	return all, err
}

// hydraSession is one goroutine of the client that all sessions share.
type hydraSession struct {
	c     *hydra.Client
	value []byte
}

func (*hydraSession) depth() int   { return 1 }
func (*hydraSession) Close() error { return nil }

func (s *hydraSession) do(ops []op) (err error) {
	ctx := context.Background()
	if ops[0].update {
		_, err = s.c.Put(ctx, ops[0].key, theValue)
	} else {
		s.value, err = s.c.GetInto(ctx, ops[0].key, s.value[:0])
	}
	return err
}

// dialHydra connects a client to a server and returns it as a rival.
func dialHydra(name, addr string, pid int, o hydra.Options, records int) (*rival, func() error, error) {
	if o.Pointers == 0 {
		o.Pointers = 2 * records
	}
	c, err := hydra.Dial(context.Background(), []string{"shm:" + addr}, &o)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	v := &rival{name: name, pids: []int{pid}, stats: c.Stats, session: func() (session, error) { return &hydraSession{c: c}, nil }}
	v.load = func(records int) error {
		const size = 100
		list := make([]hydra.Request, size)
		for i := 0; i < records; i += size {
			for j := range list {
				list[j] = hydra.Request{Kind: hydra.Put, Key: hydraKey(nil, i+j), Value: theValue}
			}
			if err := c.Batch(context.Background(), list[:min(size, records-i)]); err != nil {
				return err
			}
		}
		return nil
	}
	return v, c.Close, nil
}

// The names of the rivals.
const (
	nameHydra     = "HydraDB"
	nameRedis     = "Redis"
	namePipelined = "Redis, pipeline of 16"
	nameMemcached = "memcached"
	nameSends     = "Send/Recv"
	nameWrite     = "Write"
	nameWriteRead = "Write + Read"
	nameTwoStages = "pipelined, Write"
)

// A figure is measured with all its rivals in alternation, one workload after the
// other.
type figure struct {
	name, file, what, paper string
	rivals                  []string
	base                    string
}

func figures() []figure {
	return []figure{
		{"Figure 9: beside Redis and memcached", "fig9", "memory mode, one shard; 50 goroutines of one client; Redis and memcached by 50 connections over TCP, without persistence",
			"an order of magnitude more than memcached, Redis and another store, with up to a fiftieth of the latency", []string{nameRedis, namePipelined, nameMemcached, nameHydra}, nameRedis},
		{"Figure 10: ways of a request", "fig10", "two shards; Send/Recv and Write: by message; Write + Read: with one-sided GETs; pipelined: two threads receive and two serve",
			"+Read 1.10, 1.14, 1.30 of Write (zipfian, 50, 90, 100 % GET); Write 1.95, 1.53, 1.27, 1.87, 1.61, 1.34 of pipelined; all of them far above Send/Recv",
			[]string{nameSends, nameWrite, nameWriteRead, nameTwoStages}, nameWrite},
	}
}

// hydraBench has the rivals.
type hydraBench struct {
	s      settings
	dir    string
	rivals map[string]*rival
	ends   []func() error
}

func (b *hydraBench) close() (err error) {
	for _, end := range slices.Backward(b.ends) {
		err = errors.Join(err, end())
	}
	return err
}

func (b *hydraBench) wants(f *figure) bool { return strings.Contains(f.name, b.s.only) }

// open starts the processes that the chosen figures need.
func (b *hydraBench) open() error {
	b.rivals = map[string]*rival{}
	for _, f := range figures() {
		if !b.wants(&f) {
			continue
		}
		for _, name := range f.rivals {
			if b.rivals[name] != nil {
				continue
			}
			v, err := b.start(name)
			if err != nil {
				return err
			}
			b.rivals[name] = v
			if err := v.load(b.s.records); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func (b *hydraBench) start(name string) (*rival, error) {
	switch name {
	case nameRedis, namePipelined:
		return b.startRedis(name)
	case nameMemcached:
		return b.startMemcached()
	}
	kind, o := "one", hydra.Options{}
	switch name {
	case nameSends:
		kind, o = "two", hydra.Options{Carrier: wire.CarrierSend, Pointers: -1}
	case nameWrite:
		kind, o = "two", hydra.Options{Pointers: -1}
	case nameWriteRead:
		kind = "two"
	case nameTwoStages:
		kind, o = "stages", hydra.Options{Pointers: -1}
	}
	addr := filepath.Join(b.dir, fmt.Sprint(len(b.ends), ".sock"))
	pid, err := b.startServer(kind, addr)
	if err != nil {
		return nil, err
	}
	v, end, err := dialHydra(name, addr, pid, o, b.s.records)
	if err == nil {
		b.ends = append(b.ends, end)
	}
	return v, err
}

// A cellOf has the medians of a rival's rounds in a workload. Ratios are to the base in the same round.
type cellOf struct {
	perSecond, micros, server, messages, oneSided float64
	p50                                           time.Duration
	ratio, cheaper, better                        float64 // better: ratio to the faster one of Redis and memcached
	faster                                        float64 // the p50 of that one divided by the p50 of this rival
}

// measure measures a figure.
func (b *hydraBench) measure(f *figure) ([][]cellOf, error) {
	list := workloads(b.s.records, b.s.rows)
	table := make([][]cellOf, len(list))
	for i := range list {
		list[i].drawRecords()
		rounds := make([]map[string]*turn, b.s.rounds)
		for n := range rounds {
			rounds[n] = map[string]*turn{}
			for _, name := range f.rivals {
				r, err := measureRival(b.rivals[name], &list[i], b.s.each)
				if err != nil {
					return nil, err
				}
				rounds[n][name] = &r
			}
		}
		of := func(name string, what func(*turn, map[string]*turn) float64) float64 {
			var all []float64
			for _, round := range rounds {
				all = append(all, what(round[name], round))
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		for _, name := range f.rivals {
			c := cellOf{
				perSecond: of(name, func(r *turn, _ map[string]*turn) float64 { return r.perSecond() }),
				micros:    of(name, func(r *turn, _ map[string]*turn) float64 { return r.micros() }),
				server:    of(name, func(r *turn, _ map[string]*turn) float64 { return 1e6 * r.server / float64(max(r.ops, 1)) }),
				messages:  of(name, func(r *turn, _ map[string]*turn) float64 { return float64(r.messages) / float64(max(r.ops, 1)) }),
				oneSided:  of(name, func(r *turn, _ map[string]*turn) float64 { return float64(r.oneSided) / float64(max(r.ops, 1)) }),
				p50:       time.Duration(of(name, func(r *turn, _ map[string]*turn) float64 { return float64(r.p50) })),
				ratio:     of(name, func(r *turn, all map[string]*turn) float64 { return r.perSecond() / all[f.base].perSecond() }),
				cheaper:   of(name, func(r *turn, all map[string]*turn) float64 { return all[f.base].micros() / r.micros() }),
			}
			if rounds[0][nameMemcached] != nil {
				c.better = of(name, func(r *turn, all map[string]*turn) float64 {
					return r.perSecond() / max(all[nameRedis].perSecond(), all[nameMemcached].perSecond())
				})
				c.faster = of(name, func(r *turn, all map[string]*turn) float64 {
					return float64(min(all[nameRedis].p50, all[nameMemcached].p50)) / float64(max(r.p50, 1))
				})
			}
			table[i] = append(table[i], c)
		}
	}
	return table, nil
}

// hydraReport measures the chosen figures and writes a table and a plot for each into the directory.
func hydraReport(s settings) (err error) {
	dir, err := os.MkdirTemp("", "hydrabench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	b := &hydraBench{s: s, dir: dir}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(); err != nil {
		return err
	}
	for _, f := range figures() {
		if !b.wants(&f) {
			continue
		}
		table, err := b.measure(&f)
		if err != nil {
			return err
		}
		if err := b.write(&f, table); err != nil {
			return err
		}
	}
	if strings.Contains("Figure 11: pointers that hit", s.only) {
		return b.hits()
	}
	return nil
}

// write writes the table and the plot of a figure.
func (b *hydraBench) write(f *figure, table [][]cellOf) error {
	var out strings.Builder
	fmt.Fprintf(&out, "## %s\n\n%s. %d records of 16 + %d bytes; medians of %d rounds of %v each behind as long a warm-up, the rivals in turn.%s The paper: %s.\n\n", f.name, f.what, b.s.records, valueSize, b.s.rounds, b.s.each, load(), f.paper)
	fmt.Fprintf(&out, "| | | operations/s | of %s's | processor, µs | %s's by it | server, µs | messages | Reads | p50, µs |", f.base, f.base)
	rule := "\n|---|---|---|---|---|---|---|---|---|---|"
	nine := table[0][0].better > 0
	if nine {
		out.WriteString(" of the better of Redis, memcached | its p50 by this |")
		rule += "---|---|"
	}
	out.WriteString(rule + "\n")
	plotted := section{name: f.name, systems: f.rivals, base: f.base}
	bars := make([][]measured, len(table))
	for r, w := range workloads(b.s.records, b.s.rows) {
		plotted.rows = append(plotted.rows, w.String())
		for i, name := range f.rivals {
			c := &table[r][i]
			bars[r] = append(bars[r], measured{ratio: c.ratio, cheaper: c.cheaper})
			fmt.Fprintf(&out, "| %s | %s | %.0f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f |", w.String(), name, c.perSecond, c.ratio, c.micros, c.cheaper, c.server, c.messages, c.oneSided, float64(c.p50.Nanoseconds())/1e3)
			if nine {
				fmt.Fprintf(&out, " %.2f | %.2f |", c.better, c.faster)
			}
			out.WriteString("\n")
		}
	}
	fmt.Fprintf(&out, "\n![%s](%s.svg)\n", f.name, f.file)
	fmt.Print(out.String())
	return errors.Join(os.WriteFile(filepath.Join(b.s.out, f.file+".svg"), plot(&plotted, bars), 0o644), os.WriteFile(filepath.Join(b.s.out, f.file+".md"), []byte(out.String()), 0o644))
}

// hits measures figure 11: one client with one cache of pointers makes as many requests as there are records, for
// rising shares of updates.
func (b *hydraBench) hits() error {
	var out strings.Builder
	fmt.Fprintf(&out, "## Figure 11: pointers that hit\n\n%d requests for %d records by one client with one cache of pointers, all pointers new. The paper: 75.5 %% fewer hits (zipfian) from no updates to 50 %%.\n\n", b.s.records, b.s.records)
	out.WriteString("| | updates | Reads that hit | of those without updates | Reads that proved nothing | messages |\n|---|---|---|---|---|---|\n")
	for _, d := range []draw{overRecords{newZipfian(b.s.records, zetaOf(b.s.records))}, uniform{b.s.records}} {
		none := uint64(0)
		for i, updates := range []float64{0, 0.1, 0.5} {
			addr := filepath.Join(b.dir, fmt.Sprint("hits", i, d.name(), ".sock"))
			pid, err := b.startServer("one", addr)
			if err != nil {
				return err
			}
			v, end, err := dialHydra(nameHydra, addr, pid, hydra.Options{}, b.s.records)
			if err != nil {
				return err
			}
			if err = v.load(b.s.records); err == nil {
				before := v.stats()
				s, _ := v.session()
				rnd := rand.New(rand.NewPCG(1, 2))
				one := make([]op, 1)
				for range b.s.records {
					one[0].key, one[0].update = hydraKey(one[0].key, d.next(rnd)), rnd.Float64() < updates
					err = cmp.Or(err, s.do(one))
				}
				after := v.stats()
				hit := after.OneSided - before.OneSided
				if i == 0 {
					none = hit
				}
				fmt.Fprintf(&out, "| %s | %.0f %% | %d | %+.1f %% | %d | %d |\n", d.name(), 100*updates, hit, 100*(float64(hit)/float64(max(none, 1))-1), after.Refused-before.Refused, after.Messages-before.Messages)
			}
			if err = errors.Join(err, end()); err != nil {
				return err
			}
		}
	}
	fmt.Print(out.String())
	return os.WriteFile(filepath.Join(b.s.out, "fig11.md"), []byte(out.String()), 0o644)
}

// overRecords is a zipfian distribution over the records themselves, which figure 11 needs: with ranks among ten
// thousand million items hardly any record is drawn twice.
type overRecords struct{ z *zipfian }

func (o overRecords) next(r *rand.Rand) int { return int(fnv(o.z.rank(r)) % uint64(o.z.n)) }
func (o overRecords) name() string          { return "zipfian" }
