package mvcc

import (
	"sync/atomic"
	"time"
)

// A backup is a reader that ends soon, and that commits should not notice. Two things are done for it that are not
// done for other readers:
//
//   - The bound of the file rises at once by what readers hold. Otherwise commits wait when the file reaches its
//     bound: each round of background work finds that readers hold the room, and raises the bound by a step. A commit
//     may pass the bound in 8 ms, so four writers waited up to 35 ms each, twice in a backup of 0.3 s.
//   - Nothing is given back to the file system while the backup is young. Some hundred holes a second in segments that
//     readers hold made commits wait for the file system, and the segments come back whole when the backup ends. Free
//     segments were given back and soon taken again, which takes a sync and zeros: 35 times and 47 MiB of zeros in 3 s of
//     backups of 40 MB, one after the other; now 4 times and 15.
//
// Invariants:
//
//  1. The raise stays when the backup ends, and is taken back as any other: what the backup has held can be used only
//     two checkpoints later.
//  2. While nothing is given back, the file grows at most by as much as it took when the backup began, because no reader holds
//     segments written since then. During a backup that is older than thinAfter, space is given back.
type backups struct {
	count atomic.Int32
	since atomic.Int64 // when the oldest began, or an earlier one that it has met; ns since 1970
}

// thinAfter is the age of a backup from which on space is given back. Larger: a backup to a slow place holds more of the
// file for longer. Smaller: more backups make commits wait for the file system. A backup of a database of 1 GB takes 10
// s while there are writers.
const thinAfter = 10 * time.Second

// BeginBackup is called before a transaction for a backup begins, and end when it has ended.
func BeginBackup(e *Engine) (end func()) { return e.pressure.crowd.backups.begin() }

func (b *backups) begin() (end func()) {
	if b.count.Load() == 0 {
		b.since.Store(time.Now().UnixNano())
	}
	b.count.Add(1)
	return func() { b.count.Add(-1) }
}

func (b *backups) underWay() bool { return b.count.Load() > 0 }

// young reports whether a backup is under way and none is older than thinAfter.
func (b *backups) young() bool {
	return b.underWay() && time.Since(time.Unix(0, b.since.Load())) < thinAfter
}

// fitsBesideBackups raises the bound for what backups under way hold by now, if there are any, and reports whether
// the pages fit. It may be called by a commit that is not in the commit list.
func (p *pressure) fitsBesideBackups(pages int64) bool {
	if !p.crowd.backups.underWay() {
		return false
	}
	if p.log.withLog(func() error {
		p.noteBound()
		return p.Failed()
	}) != nil {
		return false
	}
	p.callNext()
	return p.store.FitsBound(pages)
}
