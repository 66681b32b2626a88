package override

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

const modelPath = "model.db"

func modelOptions() logstore.Options {
	return logstore.Options{SegmentPages: 8, ChunkPages: 128, CheckNode: btree.CheckPage}
}

func (m *model) close() {
	if m.p != nil {
		m.p.Close()
		m.s.Close()
		m.p, m.s = nil, nil
	}
}

// open creates or recovers the database. c is the crash that it recovers from.
func (m *model) open(c *crash) error {
	s, rec, err := logstore.Open(m.mem, modelPath, modelOptions())
	if err != nil {
		return err
	}
	m.records.maxRun = s.MaxRun()
	m.s, m.registry, m.flush, m.check, m.plan, m.readers, m.pending = s, &lockfree.Registry{}, nil, nil, nil, nil, nil
	m.trap, m.image, m.checked = 0, nil, nil
	m.mem.OnOp(nil)
	if rec.Created {
		if c != nil && m.sound >= 2 {
			return modelErr("the database is gone")
		}
		return m.create(rec)
	}
	if m.p, m.count, err = Recover(s, rec, m.registry, btree.NewMemory()); err != nil {
		return err
	}
	last := s.LastGroup()
	if last < c.group {
		return modelErr("recovered up to group %d, %d were durable", last, c.group)
	}
	for _, b := range m.p.births {
		if b.group <= m.p.Base() {
			return modelErr("a value born in group %d counts as born after the base, %d", b.group, m.p.Base())
		}
	}
	st, err := m.recovered(last)
	if err != nil {
		return err
	}
	if err := s.EndRecovery(rec); err != nil {
		return err
	}
	m.history = map[uint64]modelState{1: st}
	m.appliedSeq.Store(1)
	m.durableSeq.Store(1)
	if err := m.redo(rec); err != nil {
		return err
	}
	m.mem.OnOp(m.hook)
	if err := errors.Join(m.verifyNewest(), m.checkInstalled()); err != nil {
		return err
	}
	return m.walk(m.p.At(m.appliedSeq.Load()), func(btree.PageID, btree.Node) error { return nil })
}

func (m *model) create(rec *logstore.Recovery) (err error) {
	if err := m.s.Reserve(8, true); err != nil {
		return err
	}
	if m.p, err = Create(m.s, m.registry, btree.NewMemory(), false); err != nil {
		return err
	}
	m.s.Release(8)
	if err := m.s.EndRecovery(rec); err != nil {
		return err
	}
	empty := make(modelState, len(m.records.keys))
	m.count, m.sound = 0, 0
	m.history, m.inGroup = map[uint64]modelState{1: empty}, map[uint64]uint64{1: 1}
	m.appliedSeq.Store(1)
	m.durableSeq.Store(1)
	for m.sound < 2 {
		if err := m.checkpointStep(); err != nil {
			return err
		}
	}
	m.mem.OnOp(m.hook)
	return nil
}

// recovered finds the state with which a recovered log ends, and forgets the groups that were lost.
func (m *model) recovered(last uint64) (modelState, error) {
	var seq, newest uint64
	for group, s := range m.inGroup {
		if group > last {
			delete(m.inGroup, group)
		} else if group > newest {
			newest, seq = group, s
		}
	}
	st := m.history[seq]
	if st == nil {
		return nil, modelErr("no history of group %d", newest)
	}
	for group := range m.inGroup {
		m.inGroup[group] = 1 // only the newest state may be asked for again; it has Seq 1 from now on
	}
	return st, nil
}

// redo applies the record groups after the base: as they come, or merged, as mvcc does.
func (m *model) redo(rec *logstore.Recovery) error {
	var all []modelOp
	old := map[logstore.Addr]bool{} // values whose deaths before the base are listed
	if m.p.RedoStart() < m.p.Base() {
		modelCounts.PartsRedone++
	}
	for i := range rec.Groups {
		g := &rec.Groups[i]
		if g.Kind != logstore.RecordGroup || g.No <= m.p.RedoStart() {
			continue
		}
		var stream []byte
		for _, p := range g.Pages {
			if p.Kind == logstore.KindRecord {
				body, err := m.s.Body(p)
				if err != nil {
					return err
				}
				stream = append(stream, body...)
			}
		}
		_, ops := getModelRedo(stream)
		modelCounts.Redone += len(ops)
		for _, op := range ops {
			if g.No <= m.p.Base() {
				old[op.addr] = true
			}
		}
		all = append(all, ops...)
	}
	merge := m.p.RedoStart() < m.p.Base() || m.r.IntN(2) == 0 // a value that was replaced before the base must not come back
	for len(all) > 0 {
		n := len(all)
		if !merge {
			n = 1
		}
		if err := m.redoOps(all[:n], old); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// redoOps applies ops of which only the last one of a key counts.
func (m *model) redoOps(ops []modelOp, old map[logstore.Addr]bool) error {
	seq := m.appliedSeq.Load() + 1
	b := m.p.Begin(seq)
	slices.SortStableFunc(ops, func(x, y modelOp) int { return x.key - y.key })
	var keep []modelOp
	for i, op := range ops {
		if i+1 == len(ops) || ops[i+1].key != op.key {
			keep = append(keep, op)
		} else if op.addr != 0 && !old[op.addr] {
			b.Drop(*m.treeOps([]modelOp{op})[0].Ref)
		}
	}
	r, err := btree.Apply(b, Root, m.treeOps(keep))
	if err != nil {
		return err
	}
	m.count += r.Added
	m.history[seq] = m.history[1]
	m.appliedSeq.Store(seq)
	m.durableSeq.Store(seq)
	return nil
}

// crashNow cuts the power between two steps.
func (m *model) crashNow() error {
	c := &crash{group: m.s.Durable(), sound: m.sound}
	from := m.mem
	if m.r.IntN(4) == 0 { // before the power cut the process is killed
		from = m.mem.Clone()
		defer from.Release()
	}
	c.mem = from.Crash(vfs.Policy(m.r.IntN(len(vfs.Policies()))), m.r.Uint64())
	return m.recoverFrom(c, false)
}

// recoverFrom continues from an image. An image taken between two steps may lose a superblock, if the other one
// is whole.
func (m *model) recoverFrom(c *crash, trapped bool) error {
	modelCounts.Crashes++
	if m.flush != nil {
		modelCounts.FlushesCut++
	}
	for _, r := range m.readers {
		r.slot.Release()
	}
	m.close()
	m.mem.Release()
	m.mem, m.sound = c.mem, c.sound
	if !trapped && m.sound >= 2 && m.r.IntN(3) == 0 {
		m.sound = 0
		modelCounts.Damaged++
		if err := m.damage(int64(m.r.IntN(2))); err != nil {
			return err
		}
	}
	if err := m.open(c); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	return nil
}

// damage destroys a superblock.
func (m *model) damage(page int64) error {
	f, err := m.mem.Open(modelPath, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	junk := make([]byte, logstore.PageSize)
	for i := range junk {
		junk[i] = byte(i)
	}
	if _, err := f.WriteAt(junk, page*logstore.PageSize); err != nil {
		return err
	}
	return f.Datasync()
}
