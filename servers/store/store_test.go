package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/dbm"
	"flashdbm/internal/opener"
	"flashdbm/logstore/vfs"
)

func openStore(t *testing.T, path string, pause time.Duration) *Store {
	f, err := OpenFile(path, 0)
	require.NoError(t, err)
	s, err := Open(f, func() {}, pause)
	require.NoError(t, err)
	return s
}

func put(s *Store, seq uint64, key, value string) {
	s.Append(Entry{Seq: seq, Hash: uint64(len(key)), Record: Record{Version: seq + s.State().Base, Key: []byte(key), Value: []byte(value)}})
}

// TestLives: each life begins where the file ends, with a higher term, and with versions above all that may have been
// used.
func TestLives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	seq, version := uint64(0), uint64(0)
	for life := range uint64(4) {
		s := openStore(t, path, time.Millisecond)
		assert.Equal(t, life+1, s.State().Term)
		assert.Equal(t, seq, s.State().Seq)
		assert.Greater(t, seq+1+s.State().Base, version)
		s.Start()
		for range 3000 {
			seq++
			put(s, seq, fmt.Sprint(seq%100), fmt.Sprint(seq))
		}
		version = seq + s.State().Base
		assert.Eventually(t, func() bool { return s.Durable() == seq }, time.Minute, time.Millisecond)
		s.Fetch(2, []byte("77"))
		s.Fetch(2, []byte("absent"))
		var got []Fetched
		require.Eventually(t, func() bool { got = append(got, s.Fetches()...); return len(got) == 2 }, time.Minute, time.Millisecond)
		assert.True(t, got[0].Found)
		assert.Equal(t, fmt.Sprint(seq-(seq+23)%100), string(got[0].Value))
		assert.False(t, got[1].Found)
		s.Append(Entry{Seq: seq + 1, Hash: 2, Remove: true, Record: Record{Key: []byte("77")}})
		seq++
		require.NoError(t, s.Close(), "Close brings all to the file")
		f, err := OpenFile(path, 0)
		require.NoError(t, err)
		_, found, err := f.Get(2, []byte("77"))
		require.NoError(t, err)
		assert.False(t, found)
		require.NoError(t, f.Close())
	}
}

func TestPieces(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "f"), 0)
	for i := range uint64(500) {
		s.Append(Entry{Seq: i + 1, Hash: i / 2, Record: Record{Version: i + 1, Key: fmt.Append(nil, i), Value: make([]byte, 100)}})
	}
	s.Start()
	require.Eventually(t, func() bool { return s.Applied() == 500 }, time.Minute, time.Millisecond)
	n, from := 0, uint64(0)
	for {
		s.Load(9, from, 200, 1500)
		var p []Piece
		require.Eventually(t, func() bool { p = s.Pieces(); return len(p) == 1 }, time.Minute, time.Millisecond)
		assert.EqualValues(t, 9, p[0].ID)
		assert.Equal(t, from, p[0].First)
		assert.Zero(t, len(p[0].Hashes)%2, "items of one hash are in one piece")
		for _, h := range p[0].Hashes {
			assert.True(t, from <= h && h <= p[0].Last)
		}
		n += len(p[0].Records)
		if p[0].Last == 200 {
			break
		}
		from = p[0].Last + 1
	}
	assert.Equal(t, 402, n)
	require.NoError(t, s.Close())
}

// TestFull: entries for which there is no room are kept, no others are accepted meanwhile, and they are applied once
// there is room.
func TestFull(t *testing.T) {
	disk := vfs.NewMem(1 << 30)
	defer disk.Release()
	opts := FileOptions(0)
	db, err := opener.On(disk, "f", opts)
	require.NoError(t, err)
	s, err := Open(NewFile(db.(*dbm.DB), 0), func() {}, 0)
	require.NoError(t, err)
	s.Gather(1)
	seq := uint64(0)
	put(s, seq+1, "first", "1")
	seq++
	s.StepCommitter(time.Now())
	require.Equal(t, seq, s.Applied())
	disk.SetMaxBytes(disk.Used() + 64<<10)
	for i := 0; !s.Full() && i < 1000; i++ {
		put(s, seq+1, fmt.Sprint("key ", i), string(make([]byte, 60<<10)))
		seq++
		s.StepCommitter(time.Now())
		s.StepSyncer(time.Now())
	}
	require.True(t, s.Full())
	applied := s.Applied()
	assert.Less(t, applied, seq)
	assert.False(t, s.Fits(1))
	assert.NoError(t, s.Err())
	s.StepCommitter(time.Now())
	assert.Equal(t, applied, s.Applied())
	for worked, next, now := true, time.Now(), time.Now(); worked; now = now.Add(roundMost) {
		if worked, next = s.StepSyncer(now); !worked {
			assert.Equal(t, now.Add(retryFull), next, "the syncer tries again as well")
		}
	}
	disk.SetMaxBytes(0)
	for range 100 {
		s.StepCommitter(time.Now())
	}
	assert.Equal(t, seq, s.Applied(), "nothing that was acknowledged is lost")
	assert.True(t, s.Fits(1))
	require.NoError(t, s.Close())
}

// A fault is a file whose calls fail when the test says so.
type fault struct {
	File
	bad atomic.Bool
}

var errFault = errors.New("fault")

func (f *fault) Sync() error {
	if f.bad.Load() {
		return errFault
	}
	return f.File.Sync()
}

func TestFailure(t *testing.T) {
	file, err := OpenFile(filepath.Join(t.TempDir(), "f"), 0)
	require.NoError(t, err)
	f := &fault{File: file}
	var woken atomic.Int64
	s, err := Open(f, func() { woken.Add(1) }, 0)
	require.NoError(t, err)
	s.Start()
	put(s, 1, "a", "1")
	require.Eventually(t, func() bool { return s.Durable() == 1 }, time.Minute, time.Millisecond)
	f.bad.Store(true)
	before := woken.Load()
	put(s, 2, "b", "2")
	require.Eventually(t, func() bool { return s.Err() != nil }, time.Minute, time.Millisecond)
	assert.Greater(t, woken.Load(), before, "the shard is told")
	assert.EqualValues(t, 1, s.Durable())
	assert.ErrorIs(t, s.Close(), errFault)
}

// TestCrash cuts the power at random moments of a store that works on its own threads. The file has a prefix of the
// entries with all durable ones.
func TestCrash(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 3))
		disk := vfs.NewMem(1 << 30)
		db, err := opener.On(disk, "f", FileOptions(0))
		require.NoError(t, err)
		s, err := Open(NewFile(db.(*dbm.DB), 0), func() {}, 0)
		require.NoError(t, err)
		s.Start()
		var image *vfs.Mem
		var durable, appended uint64
		var done sync.WaitGroup
		stop := make(chan struct{})
		done.Go(func() {
			time.Sleep(time.Duration(1+r.IntN(20)) * time.Millisecond)
			durable = s.Durable()
			clone := disk.Clone()
			image = clone.Crash(vfs.Policies()[seed%uint64(len(vfs.Policies()))], seed)
			clone.Release()
			close(stop)
		})
		for running := true; running; {
			select {
			case <-stop:
				running = false
			default:
				if appended-s.Applied() < 5000 {
					appended++
					put(s, appended, fmt.Sprint(appended%37), fmt.Sprint(appended))
				} else {
					time.Sleep(100 * time.Microsecond)
				}
			}
		}
		done.Wait()
		require.NoError(t, s.Close())
		disk.Release()
		db, err = opener.On(image, "f", FileOptions(0))
		require.NoError(t, err)
		f := NewFile(db.(*dbm.DB), 0)
		state, err := f.State()
		require.NoError(t, err)
		require.GreaterOrEqual(t, state.Seq, durable, "seed %d", seed)
		want := map[string]string{}
		for i := state.Seq; i > 0 && i+37 > state.Seq; i-- {
			want[fmt.Sprint(i%37)] = fmt.Sprint(i)
		}
		got := map[string]string{}
		require.NoError(t, f.Scan(0, math.MaxUint64, func(_ uint64, r *Record) bool {
			got[string(r.Key)] = string(r.Value)
			return true
		}))
		require.Equal(t, want, got, "seed %d: the file counts %d entries", seed, state.Seq)
		require.NoError(t, f.Close())
		image.Release()
	}
}

func TestHostileRecords(t *testing.T) {
	var s State
	for n := range 40 {
		b := make([]byte, n)
		if n > 0 {
			b[0] = stateLayout
		}
		assert.Equal(t, n == stateSize, s.parse(b) == nil, "%d bytes", n)
		_, _, err := parseRecord(b, b)
		assert.Equal(t, n >= recordHead, err == nil)
	}
	b := (&State{Term: 1, Seq: 2, Base: 3}).append(nil)
	require.NoError(t, s.parse(b))
	assert.Equal(t, State{Term: 1, Seq: 2, Base: 3}, s)
	assert.Len(t, b, stateSize, "a shard without replicas has the first layout")
	b[0]++
	assert.ErrorIs(t, s.parse(b), ErrCorrupt)
	want := State{Term: 1, Seq: 20, Base: 3}
	for term := range uint64(maxTerms + 2) {
		want.note(&Entry{Term: term + 1, Seq: 2 * term})
		want.note(&Entry{Term: term + 1, Seq: 2*term + 1})
		want.note(&Entry{Seq: 2*term + 1})
	}
	assert.Equal(t, Term{maxTerms + 2, 2 * (maxTerms + 1)}, want.Terms[0])
	assert.Equal(t, Term{3, 4}, want.Terms[maxTerms-1])
	require.NoError(t, s.parse(want.append(nil)))
	assert.Equal(t, want, s)
}

// TestPauses: if no caller waits for the file, entries are gathered, but only for a moment, and for at most one
// transaction.
func TestPauses(t *testing.T) {
	f, err := OpenFile(filepath.Join(t.TempDir(), "f"), 0)
	require.NoError(t, err)
	s, err := Open(f, func() {}, time.Hour)
	require.NoError(t, err)
	seq := uint64(0)
	put := func(n int) {
		for range n {
			seq++
			put(s, seq, fmt.Sprint("key", seq), "value")
		}
	}
	put(1)
	now := time.Now().Add(time.Hour) // the test advances it
	worked, _ := s.StepCommitter(now)
	require.True(t, worked, "the first one goes at once")
	put(5)
	worked, next := s.StepCommitter(now.Add(commitPause / 2))
	require.False(t, worked)
	require.Equal(t, now.Add(commitPause), next)
	worked, _ = s.StepCommitter(next)
	require.True(t, worked)
	require.EqualValues(t, 6, s.Applied())
	put(maxEntries - 1)
	worked, _ = s.StepCommitter(next)
	require.False(t, worked)
	put(2)
	worked, _ = s.StepCommitter(next)
	require.True(t, worked, "there are enough")
	require.EqualValues(t, 6+maxEntries, s.Applied())
	require.NoError(t, s.Close())
	require.Equal(t, seq, s.Applied(), "Close waits for nothing")
}

// TestPausesEnd appends one entry after the other to a store with threads, and waits until each is in the file: no
// wake-up is lost.
func TestPausesEnd(t *testing.T) {
	f, err := OpenFile(filepath.Join(t.TempDir(), "f"), 0)
	require.NoError(t, err)
	s, err := Open(f, func() {}, time.Hour)
	require.NoError(t, err)
	s.Start()
	for seq := uint64(1); seq <= 300; seq++ {
		put(s, seq, fmt.Sprint("key", seq), "value")
		if seq%3 == 0 {
			require.Eventually(t, func() bool { return s.Applied() == seq }, time.Minute, 100*time.Microsecond)
		}
	}
	require.NoError(t, s.Close())
}

// The syncs of a slowFile last until the test ends them.
type slowFile struct {
	File
	began, ends chan bool
}

func (f *slowFile) Sync() error {
	f.began <- true
	<-f.ends
	return f.File.Sync()
}

// TestGathers: entries that come during a sync are applied after it, unless they are many.
func TestGathers(t *testing.T) {
	f, err := OpenFile(filepath.Join(t.TempDir(), "f"), 0)
	require.NoError(t, err)
	slow := &slowFile{f, make(chan bool, 100), make(chan bool, 1)}
	slow.ends <- true
	s, err := Open(slow, func() {}, 0)
	require.NoError(t, err)
	<-slow.began
	s.Start()
	put(s, 1, "first", "value")
	<-slow.began
	require.EqualValues(t, 1, s.Applied())
	seq := uint64(1)
	for range syncedEntries - 1 {
		seq++
		put(s, seq, fmt.Sprint("key", seq), "value")
	}
	time.Sleep(20 * time.Millisecond)
	require.EqualValues(t, 1, s.Applied())
	slow.ends <- true
	<-slow.began
	require.Equal(t, seq, s.Applied())
	require.EqualValues(t, 1, s.Durable())
	for range syncedEntries {
		seq++
		put(s, seq, fmt.Sprint("key", seq), "value")
	}
	require.Eventually(t, func() bool { return s.Applied() == seq }, time.Minute, time.Millisecond, "there are enough")
	slow.ends <- true
	<-slow.began
	slow.ends <- true
	require.Eventually(t, func() bool { return s.Durable() == seq }, time.Minute, time.Millisecond)
	seq++
	put(s, seq, "last", "value") // the round expects more
	close(slow.ends)             // from now on syncs take no time
	require.NoError(t, s.Close())
	require.Equal(t, seq, s.Applied())
}

// TestRound: a sync waits for the clients that the last sync has answered: for the length of some syncs if clients
// come, and of one sync if they do not. A single client waits for nobody.
func TestRound(t *testing.T) {
	const sync = 100 * time.Microsecond
	var r round
	now := time.Unix(1000, 0)
	complete, _ := r.complete(1, now)
	require.True(t, complete, "nothing is known of others")
	r.begin(1, now, sync)
	complete, _ = r.complete(1, now)
	require.True(t, complete)
	for range 100 {
		r.begin(50, now, sync)
	}
	waits := func(syncs int, why string) (until time.Time) {
		t.Helper()
		r.begin(50, now, sync)
		complete, until := r.complete(49, now)
		require.False(t, complete)
		require.InDelta(t, time.Duration(syncs)*sync, until.Sub(now), float64(time.Microsecond), why)
		complete, _ = r.complete(49, until.Add(-1))
		require.False(t, complete)
		return until
	}
	for range 3 {
		waits(roundPatience, "they come")
		complete, _ = r.complete(50, now)
		require.True(t, complete)
	}
	for late := range 2*roundProbe + 1 {
		syncs := max(1, roundPatience>>late)
		if late > 0 && late%roundProbe == 0 {
			syncs = roundPatience // by now they may come
		}
		complete, _ = r.complete(1, waits(syncs, fmt.Sprint("they have not come ", late, " times")))
		require.True(t, complete)
	}
	complete, _ = r.complete(50, now)
	require.True(t, complete)
	waits(roundPatience, "they come again")
	r.begin(50, now, time.Hour)
	_, until := r.complete(1, now)
	require.Less(t, until.Sub(now), roundMost, "one slow sync changes little")
	for range 100 {
		r.begin(50, now, time.Hour)
	}
	_, until = r.complete(1, now)
	require.LessOrEqual(t, until.Sub(now), roundMost)
}

// TestSyncs: the syncer applies the waiting entries before it syncs. Entries that come during a sync are in the next
// one. The shard is told of a sync once its entries are durable.
func TestSyncs(t *testing.T) {
	f, err := OpenFile(filepath.Join(t.TempDir(), "f"), 0)
	require.NoError(t, err)
	told := 0
	s, err := Open(f, func() { told++ }, 0)
	require.NoError(t, err)
	now := time.Now()
	step := func() (worked bool, next time.Time) {
		now = now.Add(time.Microsecond)
		return s.StepSyncer(now)
	}
	worked, next := step()
	require.False(t, worked)
	require.True(t, next.IsZero(), "an idle syncer waits for a kick")
	put(s, 1, "first", "value")
	put(s, 2, "second", "value")
	worked, _ = s.StepCommitter(now)
	require.False(t, worked, "the syncer applies them")
	worked, _ = step()
	require.True(t, worked)
	require.EqualValues(t, 2, s.Applied())
	put(s, 3, "third", "value")
	require.EqualValues(t, 0, s.Durable())
	require.Zero(t, told)
	step()
	require.EqualValues(t, 2, s.Durable())
	require.Equal(t, 1, told)
	s.round.ends = now.Add(time.Millisecond)
	worked, next = step()
	require.False(t, worked, "three were under way")
	require.Equal(t, s.round.ends, next)
	put(s, 4, "fourth", "value")
	worked, _ = step()
	require.False(t, worked)
	put(s, 5, "fifth", "value")
	worked, _ = step()
	require.True(t, worked)
	require.EqualValues(t, 5, s.Applied())
	step()
	require.EqualValues(t, 5, s.Durable())
	require.Equal(t, 2, told)
	worked, next = step()
	require.False(t, worked)
	require.True(t, next.IsZero())
	require.NoError(t, s.Close())
}

// TestSyncedOneByOne appends entries to a store with threads, and waits until all are durable before it continues: no
// wake-up is lost. By turns it appends several entries, and single ones. For a single one the syncer must not wait for
// more.
func TestSyncedOneByOne(t *testing.T) {
	f, err := OpenFile(filepath.Join(t.TempDir(), "f"), 0)
	require.NoError(t, err)
	synced := make(chan struct{}, 1)
	s, err := Open(f, func() {
		select {
		case synced <- struct{}{}:
		default:
		}
	}, 0)
	require.NoError(t, err)
	s.Start()
	seq := uint64(0)
	for i := range 200 {
		for range 1 + i%4/3*5 {
			seq++
			put(s, seq, fmt.Sprint("key", seq), "value")
		}
		for s.Durable() < seq {
			select {
			case <-synced:
			case <-time.After(10 * time.Second):
				require.FailNow(t, "an entry waits for ever", "%d of %d", s.Durable(), seq)
			}
		}
	}
	require.NoError(t, s.Close())
}

// TestBrought: the shard checks for answers of both kinds as long as there are any.
func TestBrought(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "f"), 0)
	put(s, 1, "key", "value")
	require.False(t, s.Brought())
	s.Start()
	require.Eventually(t, func() bool { return s.Applied() == 1 }, time.Minute, time.Millisecond)
	both := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.fetched) > 0 && len(s.pieces) > 0
	}
	for _, fetchesFirst := range []bool{true, false} {
		s.Fetch(1, []byte("key"))
		s.Load(1, 0, math.MaxUint64, 0)
		require.Eventually(t, both, time.Minute, time.Millisecond)
		require.True(t, s.Brought())
		if fetchesFirst {
			require.Len(t, s.Fetches(), 1)
			require.True(t, s.Brought())
			require.Len(t, s.Pieces(), 1)
		} else {
			require.Len(t, s.Pieces(), 1)
			require.True(t, s.Brought())
			require.Len(t, s.Fetches(), 1)
		}
		require.False(t, s.Brought())
	}
	require.NoError(t, s.Close())
}

// A busyFile receives the next entries while it is scanned.
type busyFile struct {
	File
	meanwhile func()
}

func (f *busyFile) Scan(first, last uint64, yield func(hash uint64, r *Record) bool) error {
	return f.File.Scan(first, last, func(hash uint64, r *Record) bool {
		f.meanwhile()
		return yield(hash, r)
	})
}

// TestEntriesDuringALoad: a piece says up to which entry it is complete, and which entries it may contain.
func TestEntriesDuringALoad(t *testing.T) {
	file, err := OpenFile(filepath.Join(t.TempDir(), "f"), 0)
	require.NoError(t, err)
	f := &busyFile{File: file}
	s, err := Open(f, func() {}, 0)
	require.NoError(t, err)
	s.Gather(1)
	put(s, 1, "a", "1")
	s.StepCommitter(time.Now())
	require.EqualValues(t, 1, s.Applied())
	f.meanwhile = func() {
		s.Append(Entry{Seq: 2, Last: math.MaxUint64, Drop: true})
		s.StepCommitter(time.Now())
	}
	s.Load(1, 0, math.MaxUint64, 1<<20)
	s.StepLoader(time.Now())
	s.StepLoader(time.Now())
	pieces := s.Pieces()
	require.Len(t, pieces, 1)
	p := &pieces[0]
	assert.Len(t, p.Records, 1)
	assert.EqualValues(t, 1, p.Since, "the drop is not in the piece")
	assert.EqualValues(t, 2, p.Applied)
	require.NoError(t, s.Close())
}
