package override

import (
	"context"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

var ctx = context.Background()

// modelFlush is a flush in progress.
type modelFlush struct {
	f       *Flush
	encoded bool
	written bool
}

func (m *model) startFlush() error {
	part, err := m.planPart()
	if err != nil {
		return err
	}
	bound := m.p.Unwritten()
	var f *Flush
	if part == nil {
		f = m.p.StartFlush(m.s.LastGroup(), m.count)
	} else {
		bound = m.p.PartPages(part)
		f = m.p.StartPart(m.s.LastGroup(), m.count, part)
		modelCounts.GrownBehind += min(m.p.dirty.grown, 1)
	}
	if f == nil {
		return nil
	}
	if f.Pages() > bound {
		return modelErr("a flush may take %d pages, %d were foreseen", f.Pages(), bound)
	}
	f.LimitPart(1 + m.r.IntN(3))
	f.Sort()
	m.flush = &modelFlush{f: f}
	return nil
}

// planPart chooses the leaves of an incremental flush, or none for a flush of everything. Commits may come between the
// plan and the flush.
func (m *model) planPart() (*Part, error) {
	if !m.parts || m.r.IntN(3) == 0 {
		return nil, nil
	}
	slot := m.registry.Acquire(&m.appliedSeq)
	snap := m.p.At(slot.Seq())
	part, err := snap.PlanPart(m.hand, m.r.IntN(4))
	slot.Release()
	if err != nil {
		return nil, err
	}
	m.hand, m.part = part.Next, part
	for m.r.IntN(3) == 0 {
		if err := m.commit(); err != nil {
			return nil, err
		}
	}
	for _, parent := range part.Parents {
		if m.r.IntN(2) == 0 {
			err := m.batch(func(b *Batch) error {
				before := m.p.listed
				_, err := b.Rename(parent, part)
				modelCounts.Renamed += m.p.listed - before
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	if m.r.IntN(2) == 0 {
		for _, parent := range m.p.MustParents() {
			err := m.batch(func(b *Batch) error {
				before := m.p.listed
				_, err := b.RenameMust(parent)
				modelCounts.Renamed += m.p.listed - before
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return part, nil
}

// flushStep takes the flush one step further, or starts one.
func (m *model) flushStep() error {
	f := m.flush
	if n := m.p.InFlight() + m.p.Unwritten(); f != nil && n < f.f.Pages()+m.p.DirtyBytes()/logstore.PageSize {
		return modelErr("the flush in flight is not among the %d pages to write", n)
	}
	switch {
	case f == nil && m.check == nil:
		return m.startFlush()
	case f == nil:
	case f.written && m.s.Durable() < f.f.last:
		return f.f.Sync() // the watermark advances later
	case f.written:
		if f.f.Install() {
			modelCounts.Flushes++
			if m.p.RedoStart() < m.p.Base() {
				modelCounts.Parts++
			}
			modelCounts.Removed += len(f.f.removed)
			m.flush, m.plan = nil, nil
		}
	case f.encoded:
		bound, before := f.f.Pages(), m.s.Counters().Pages
		return m.reserved(bound, func() (err error) {
			f.written, err = f.f.Write()
			f.encoded = f.f.Encoded() > 0 && m.s.LastGroup()%2 == 0 // otherwise more is encoded before the other images are written
			if n := int64(m.s.Counters().Pages - before); n > bound {
				return modelErr("a part of a flush took %d pages of at most %d", n, bound)
			}
			return err
		})
	default:
		f.f.EncodeParts(1 + int(m.s.LastGroup()%3)) // not random, so that the scripts of a seed stay the same
		f.encoded = true
	}
	return nil
}

// flushWhole completes the flush in progress or, if there is none, a new one.
func (m *model) flushWhole() error {
	parts := m.parts
	defer func() { m.parts = parts }()
	m.parts = false
	err := m.flushStep()
	for err == nil && m.flush != nil {
		err = m.flushStep()
	}
	return err
}

// planFolds plans folds, which later steps make.
func (m *model) planFolds() (err error) {
	slot := m.registry.Acquire(&m.appliedSeq)
	defer slot.Release()
	if m.parts && m.part != nil && m.r.IntN(2) == 0 {
		snap := m.p.At(slot.Seq())
		parents, upper, err := snap.PlanPartFolds(m.part)
		m.plan = append(parents, upper...)
		return err
	}
	snap := m.p.At(slot.Seq())
	m.plan, err = snap.FoldPlan(1 + m.r.IntN(2))
	return err
}

// batch makes a batch that changes no record and writes no group.
func (m *model) batch(f func(*Batch) error) error {
	seq := m.appliedSeq.Load() + 1
	if err := f(m.p.Begin(seq)); err != nil {
		return err
	}
	m.publish(seq, m.s.LastGroup(), m.state(seq-1))
	return nil
}

// fold folds one of the planned inner nodes. The plan is invalid once a flush was installed.
func (m *model) fold() error {
	if len(m.plan) == 0 {
		if err := m.planFolds(); err != nil || len(m.plan) == 0 {
			return err
		}
	}
	i := m.r.IntN(len(m.plan))
	parent := m.plan[i]
	m.plan = append(m.plan[:i], m.plan[i+1:]...)
	return m.batch(func(b *Batch) error {
		before, fold := m.p.listed, (*Batch).Fold
		if m.parts && m.r.IntN(2) == 0 {
			fold = (*Batch).FoldClean
		}
		n, err := fold(b, parent)
		modelCounts.Renamed += m.p.listed - before
		modelCounts.Folds += min(n, 1)
		modelCounts.Retired += n
		return err
	})
}

// touch moves some pages as cleaning does.
func (m *model) touch() error {
	var ids []btree.PageID
	err := m.walk(m.p.At(m.appliedSeq.Load()), func(id btree.PageID, n btree.Node) error {
		modelCounts.Height = max(modelCounts.Height, n.Level()+1)
		if m.r.IntN(3) == 0 {
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.batch(func(b *Batch) error {
		for _, id := range ids[:min(len(ids), 1+m.r.IntN(4))] {
			touched, err := b.Touch(id)
			if err != nil {
				return err
			}
			if touched {
				modelCounts.Touched++
			}
		}
		return nil
	})
}

// clean moves the live pages of some segment.
func (m *model) clean() error {
	tree, _, _ := m.s.Contents(uint32(m.r.IntN(m.s.SpaceStats().Segments)))
	return m.batch(func(b *Batch) error {
		for _, a := range tree {
			moved, err := b.Clean(a)
			if err != nil {
				return err
			}
			if moved {
				modelCounts.Cleaned++
			}
		}
		return nil
	})
}

// checkpointStep takes the checkpoint one step further, or starts one.
func (m *model) checkpointStep() error {
	switch {
	case m.flush != nil:
		return nil
	case m.check == nil:
		m.p.Freeze()
		m.check = m.s.BeginCheckpoint(m.p.EncodeTable())
		m.check.LimitPart(1 + m.r.IntN(3))
		return nil
	}
	return m.reserved(m.check.Pages()+2, func() error {
		done, err := m.check.WritePart()
		if err != nil || !done {
			return err
		}
		if err := m.check.Finish(); err != nil {
			return err
		}
		modelCounts.Checkpoints++
		m.sound++
		m.publishDurable()
		m.p.Thaw()
		m.check = nil
		return m.thin()
	})
}

// thin gives back the pages that no reader sees in segments that only readers keep.
func (m *model) thin() error {
	before := m.s.Account().Held
	m.s.Thin()
	for more := true; more; {
		var err error
		if more, err = m.s.GiveBack(); err != nil {
			return err
		}
	}
	if m.s.Account().Held < before {
		modelCounts.Thinned++
	}
	return nil
}
