package logstore

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// share appends records to the last group, or in a new group that is kept open. It reports which.
func (x *script) share(records string) (group uint64, extended bool) {
	x.t.Helper()
	group, ok, err := x.s.Extend([]byte(records), uint64(len(records)))
	require.NoError(x.t, err)
	if ok {
		return group, true
	}
	return x.begun(records), false
}

// begun appends records in a new group and keeps the group open.
func (x *script) begun(records string) uint64 {
	x.t.Helper()
	require.NoError(x.t, x.s.Reserve(1, true))
	defer x.s.Release(1)
	g := x.s.Begin(RecordGroup)
	g.KeepOpen()
	g.Write(KindRecord, []byte(records))
	group, err := g.Commit(uint64(len(records)))
	require.NoError(x.t, err)
	return group
}

// records returns the streams of the accepted record groups, each without its padding.
func (x *script) records() (streams []string) {
	x.t.Helper()
	for i := range x.rec.Groups {
		g := &x.rec.Groups[i]
		if g.Kind != RecordGroup {
			continue
		}
		b, err := x.s.AppendBodies(nil, g.Pages, KindRecord)
		require.NoError(x.t, err)
		b = bytes.TrimRight(b, "\x00")
		require.EqualValues(x.t, len(b), g.Count)
		streams = append(streams, string(b))
	}
	return streams
}

func (x *script) kill() { x.become(x.mem.Clone()) }

func TestLastPageIsShared(t *testing.T) {
	x := newScript(t)
	first, extended := x.share("a")
	require.False(t, extended)
	before := x.s.Counters().Pages
	for _, r := range []string{"bc", "d"} {
		group, extended := x.share(r)
		require.True(t, extended)
		require.Equal(t, first, group)
	}
	require.Equal(t, before, x.s.Counters().Pages)
	x.append(2) // continues the chain of the longer group
	second, extended := x.share("e")
	require.False(t, extended)
	require.Equal(t, first+2, second)
	x.share("f")
	x.kill()
	x.open()
	require.Equal(t, []string{"abcd", "ef"}, x.records())
	_, extended = x.share("g")
	require.False(t, extended, "a group that was recovered")
}

// TestLastPageStays checks each event that closes the group, after which its page is not written again.
func TestLastPageStays(t *testing.T) {
	for name, end := range map[string]func(x *script){
		"sync":       func(x *script) { x.sync() },
		"close":      func(x *script) { require.Equal(x.t, x.s.LastGroup(), x.s.CloseGroup()) },
		"group":      func(x *script) { x.append(1) },
		"checkpoint": func(x *script) { x.checkpointFrom() },
		"growth":     func(x *script) { require.NoError(x.t, x.s.Reserve(1000, true)); x.s.Release(1000) },
		"full":       func(x *script) { x.share(string(bytes.Repeat([]byte("x"), BodySize-1))) },
		"private": func(x *script) {
			p := x.s.NewPrivate()
			_, err := p.Write([]byte("y"))
			require.NoError(x.t, err)
			_, err = p.Finish()
			require.NoError(x.t, err)
			require.NoError(x.t, x.s.SyncPrivate())
			p.Discard()
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newScript(t)
			x.share("a")
			end(x)
			_, extended := x.share("b")
			require.False(t, extended)
			x.kill()
			x.open()
			require.True(t, strings.HasPrefix(x.records()[0], "a"))
		})
	}
	t.Run("not kept open", func(t *testing.T) {
		x := newScript(t)
		require.NoError(t, x.s.Reserve(4, true))
		for _, n := range []int{1, BodySize + 1} {
			g := x.s.Begin(RecordGroup)
			if n > 1 {
				g.KeepOpen() // and has two pages
			}
			g.Write(KindRecord, bytes.Repeat([]byte("x"), n))
			_, err := g.Commit(uint64(n))
			require.NoError(t, err)
			_, ok, err := x.s.Extend([]byte("y"), 1)
			require.NoError(t, err)
			require.False(t, ok)
		}
	})
}

// TestLastPagePowerCut: a power cut leaves an unsynced page in one of its earlier states, or as a mixture, which does
// not count. Pages after it do not count without it.
func TestLastPagePowerCut(t *testing.T) {
	inTurn(t)
	whole := map[string]bool{"a": true, "ab": true, "ab" + string(bytes.Repeat([]byte("c"), 3000)): true}
	seen := map[string]int{}
	for _, policy := range vfs.Policies() {
		for seed := range uint64(40) {
			x := newScript(t)
			x.share("synced")
			x.sync()
			x.share("a")
			x.share("b")
			x.share(string(bytes.Repeat([]byte("c"), 3000)))
			x.begun("behind")
			x.become(x.mem.Crash(policy, seed))
			x.open()
			got := x.records()
			require.Equal(t, "synced", got[0])
			switch {
			case len(got) == 1:
				seen["lost"]++
			case len(got) == 2:
				require.True(t, whole[got[1]], "%.20q", got[1])
				seen["shorter"]++
			default:
				require.Len(t, got[1], 3002)
				require.Equal(t, "behind", got[2])
				seen["all"]++
			}
			x.begun("after")
			x.kill()
			x.open()
			require.Equal(t, append(got, "after"), x.records())
		}
	}
	for _, k := range []string{"lost", "shorter", "all"} {
		require.Positive(t, seen[k], "%v", seen)
	}
}

// slowFile lets a test run code in the middle of a write.
type slowFile struct {
	vfs.File
	fs *slowFS
}

type slowFS struct {
	vfs.FS
	write func() // may be nil
	sync  func()
}

func (s *slowFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := s.FS.Open(name, flag, perm)
	return &slowFile{f, s}, err
}

func (f *slowFile) WriteAt(p []byte, off int64) (int, error) {
	if f.fs.write != nil {
		f.fs.write()
	}
	return f.File.WriteAt(p, off)
}

func (f *slowFile) Datasync() error {
	if f.fs.sync != nil {
		f.fs.sync()
	}
	return f.File.Datasync()
}

// TestLastPageSyncWaits: a sync that is requested during a write of the page begins after that write. Once a
// sync has begun, the page is not written any more, even before the sync has ended.
func TestLastPageSyncWaits(t *testing.T) {
	x := newScript(t)
	x.s.Close()
	fs := &slowFS{FS: x.mem}
	var err error
	x.s, x.rec, err = Open(fs, toyPath, x.opts)
	require.NoError(t, err)
	require.NoError(t, x.s.EndRecovery(x.rec))
	x.begun("a")
	var done sync.WaitGroup
	var syncs atomic.Int32
	fs.sync = func() { syncs.Add(1) }
	fs.write = func() {
		fs.write = nil
		done.Go(func() { _ = x.s.Sync() })
		time.Sleep(20 * time.Millisecond)
		require.Zero(t, syncs.Load(), "a sync began while the page was being written")
	}
	_, extended := x.share("b")
	require.True(t, extended)
	done.Wait()
	require.EqualValues(t, 1, syncs.Load())
	x.begun("c")
	fs.sync = func() {
		fs.sync = nil
		_, ok, err := x.s.Extend([]byte("d"), 1)
		require.NoError(t, err)
		require.False(t, ok, "the page was written again while it was being synced")
	}
	x.sync()
	x.crash(vfs.KeepNone)
	x.open()
	require.Equal(t, []string{"ab", "c"}, x.records())
}

// TestLastPagePutBack: a write of the page that fails in the middle loses no commit that had returned.
func TestLastPagePutBack(t *testing.T) {
	x := newScript(t)
	x.begun("a")
	x.share("b")
	failed := false
	x.mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpStore || op.Kind == vfs.OpWrite && !failed {
			failed = op.Kind == vfs.OpWrite
			return &vfs.ShortWrite{N: 1024, Err: syscall.EIO}
		}
		return nil
	})
	_, _, err := x.s.Extend(bytes.Repeat([]byte("c"), 2000), 2000)
	require.ErrorIs(t, err, ErrFailed)
	_, _, err = x.s.Extend([]byte("d"), 1)
	require.ErrorIs(t, err, ErrFailed)
	x.mem.OnOp(nil)
	x.kill()
	x.open()
	require.Equal(t, []string{"ab"}, x.records())
}

// TestLastPageSyncAfterFailure: a sync that waits for a write of the page fails if that write fails. Here the
// page cannot be restored either, so some commits that had returned are lost.
func TestLastPageSyncAfterFailure(t *testing.T) {
	x := newScript(t)
	x.begun(string(bytes.Repeat([]byte("a"), 1000)))
	synced := make(chan error, 1)
	writes := 0
	x.mem.OnOp(func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpStore: // fails, so that the page is written instead
			return syscall.EIO
		case vfs.OpWrite:
		default:
			return nil
		}
		writes++
		if writes == 1 {
			go func() { synced <- x.s.Sync() }()
			time.Sleep(20 * time.Millisecond)
		}
		return &vfs.ShortWrite{N: 512 * int64(3-writes), Err: syscall.EIO}
	})
	_, _, err := x.s.Extend(bytes.Repeat([]byte("b"), 2000), 2000)
	require.ErrorIs(t, err, ErrFailed)
	require.Equal(t, 2, writes)
	require.ErrorIs(t, <-synced, ErrFailed)
	x.mem.OnOp(nil)
}

// TestLastPageBeside: a reader beside the writer has the group as it was when it was read, and gets it again
// when it is longer.
func TestLastPageBeside(t *testing.T) {
	x := newScript(t)
	x.append(1)
	first := x.begun("a")
	opts := x.opts
	opts.Beside = true
	r, rec, err := Open(x.mem, toyPath, opts)
	require.NoError(t, err)
	defer r.Close()
	body := func(g *ScannedGroup) string {
		b := g.Body()
		if b == nil {
			b, err = r.AppendBodies(nil, g.Pages, KindRecord)
			require.NoError(t, err)
		}
		b = bytes.TrimRight(b, "\x00")
		require.EqualValues(t, len(b), g.Count)
		return string(b)
	}
	x.share("b")
	last := &rec.Groups[len(rec.Groups)-1]
	require.Equal(t, "a", body(last))
	require.NoError(t, r.EndRecovery(rec))
	follow := func() (streams []string) {
		groups, lost, err := r.Follow(1)
		require.NoError(t, err)
		require.False(t, lost)
		for i := range groups {
			require.EqualValues(t, first+uint64(i), groups[i].No)
			streams = append(streams, body(&groups[i]))
		}
		return streams
	}
	require.Equal(t, []string{"ab"}, follow())
	require.Empty(t, follow())
	x.share("c")
	x.begun("d")
	require.Equal(t, []string{"abc", "d"}, follow())
	x.share("e")
	x.sync()
	first++
	require.Equal(t, []string{"de"}, follow())
	x.append(2)
	groups, lost, err := r.Follow(2)
	require.NoError(t, err)
	require.False(t, lost)
	require.Len(t, groups, 1)
}

// TestLastPageBesideSync: a reader's sync of a group that may become longer does not make the longer group
// count as durable.
func TestLastPageBesideSync(t *testing.T) {
	x := newScript(t)
	x.append(1)
	x.begun("a")
	opts := x.opts
	opts.Beside = true
	r, rec, err := Open(x.mem, toyPath, opts)
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, r.EndRecovery(rec))
	syncs := 0
	x.mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			syncs++
		}
		return nil
	})
	follow := func() {
		_, lost, err := r.Follow(1)
		require.NoError(t, err)
		require.False(t, lost)
		require.NoError(t, r.SyncFollowed())
	}
	follow()
	require.Equal(t, 1, syncs)
	x.share("b")
	follow()
	require.Equal(t, 2, syncs, "the group has become longer")
	x.append(1)
	follow()
	require.Equal(t, 3, syncs)
	follow()
	require.Equal(t, 3, syncs, "nothing new")
	x.mem.OnOp(nil)
	x.share("c")
	follow()
	x.share("d")
	follow()
	x.crash(vfs.KeepNone)
	x.open()
	require.Equal(t, []string{"ab", "cd"}, x.records())
}
