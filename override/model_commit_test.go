package override

import (
	"cmp"
	"encoding/binary"
	"slices"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// modelOp is a change of one key: to a version, or 0 for a delete.
type modelOp struct {
	key     int
	version uint32
	kind    btree.ValueKind
	addr    logstore.Addr // of its run
}

// The redo of a model: Seq u64 | ops u32 | each: key u32 | version u32 | address u64 | kind u8.
const modelRedoSize = 17

func appendModelRedo(b []byte, seq uint64, ops []modelOp) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, seq)
	b = le.AppendUint32(b, uint32(len(ops)))
	for _, op := range ops {
		b = le.AppendUint32(b, uint32(op.key))
		b = le.AppendUint32(b, op.version)
		b = le.AppendUint64(b, op.addr)
		b = append(b, byte(op.kind))
	}
	return b
}

func getModelRedo(b []byte) (seq uint64, ops []modelOp) {
	le := binary.LittleEndian
	seq = le.Uint64(b)
	ops = make([]modelOp, le.Uint32(b[8:]))
	for i := range ops {
		x := b[12+i*modelRedoSize:]
		ops[i] = modelOp{int(le.Uint32(x)), le.Uint32(x[4:]), btree.ValueKind(x[16]), le.Uint64(x[8:])}
	}
	return seq, ops
}

// treeOps converts the ops to those of btree.Apply.
func (m *model) treeOps(ops []modelOp) []btree.Op {
	tree := make([]btree.Op, len(ops))
	for i, op := range ops {
		t := &tree[i]
		t.Key = m.records.keys[op.key]
		switch {
		case op.version == 0:
			t.Delete = true
		case op.kind == btree.Inline:
			t.Value = slices.Clone(m.records.valueOf(op.key, op.version))
		default:
			_, n := m.records.form(op.key, op.version)
			t.Ref = &btree.Ref{ID: op.addr, ValueLen: uint64(n), KeyLen: m.records.refKeyLen(op.key), Kind: op.kind}
		}
	}
	return tree
}

// modelCommit is a commit in progress.
type modelCommit struct {
	seq   uint64
	ops   []modelOp
	state modelState
	large []*logstore.Private
	born  []modelBorn
	lists map[int][]logstore.Extent
}

type modelBorn struct {
	addr    logstore.Addr
	payload int64
}

func (m *model) commit() error {
	return m.write(m.newCommit(), m.r.IntN(2) == 0, 1+m.r.IntN(8))
}

// write logs and applies a commit. It becomes a page group if paged is set, if that is legal, and if the redo would
// take the given number of pages.
func (m *model) write(c *modelCommit, paged bool, redoPages int) error {
	modelCounts.Commits++
	pages := int64(32)
	for _, op := range c.ops {
		pages += 2
		if op.kind == btree.Run {
			_, n := m.records.form(op.key, op.version)
			pages += logstore.RunReserve(logstore.RunPages(int64(n + len(m.records.keys[op.key]))))
		} else if op.kind == btree.Extents {
			pages += 4
			if err := m.writeLarge(c, op); err != nil {
				return err
			}
		}
	}
	if len(c.large) > 0 {
		if err := m.s.SyncPrivate(); err != nil {
			return err
		}
	}
	return m.reserved(pages, func() error { return m.log(c, paged, redoPages) })
}

func (m *model) beginCommit() *modelCommit {
	seq := m.appliedSeq.Load()
	return &modelCommit{seq: seq + 1, state: slices.Clone(m.state(seq)), lists: map[int][]logstore.Extent{}}
}

// newCommit chooses the changes. Now and then it deletes most keys.
func (m *model) newCommit() *modelCommit {
	c := m.beginCommit()
	n, deletes := 1+m.r.IntN(m.ops), 3
	if m.records.grows {
		deletes = m.r.IntN(2)
	} else if m.r.IntN(30) == 0 {
		n, deletes = len(c.state)/2, 9
	}
	start, step := m.r.IntN(len(c.state)), 1
	if m.r.IntN(2) == 0 {
		step += m.r.IntN(len(c.state))
	}
	for i := range n {
		key := (start + i*step) % len(c.state)
		if !slices.ContainsFunc(c.ops, func(op modelOp) bool { return op.key == key }) {
			c.change(&m.records, key, m.r.IntN(10) < deletes)
		}
	}
	return c
}

// change adds a put or delete of a key that the commit did not change yet.
func (c *modelCommit) change(records *recordMaker, key int, del bool) {
	op := modelOp{key: key}
	if !del {
		op.version = uint32(c.seq)
		op.kind, _ = records.form(key, op.version)
	}
	c.ops = append(c.ops, op)
	slices.SortFunc(c.ops, func(a, b modelOp) int { return cmp.Compare(a.key, b.key) })
	c.state[key] = op.version
}

func (m *model) writeLarge(c *modelCommit, op modelOp) error {
	modelCounts.Extents++
	w := m.s.NewPrivate()
	if _, err := w.Write(m.records.valueOf(op.key, op.version)); err != nil {
		return err
	}
	extents, err := w.Finish()
	c.large = append(c.large, w)
	c.lists[op.key] = extents
	return err
}

func (m *model) log(c *modelCommit, paged bool, redoPages int) error {
	g := m.s.Begin(logstore.RecordGroup)
	m.writeRuns(g, c)
	group := g.Number()
	m.inGroup[group] = c.seq
	m.remember(c.seq, c.state) // a crash may keep the group before this process knows that it was written
	if !paged || !m.p.CanPageGroup() || slices.ContainsFunc(c.ops, m.longKey) {
		return m.logRecords(g, c)
	}
	leftover := m.p.dirty.len()
	b, records, err := m.apply(c)
	if err != nil {
		return err
	}
	if !b.Legal(redoPages) {
		if err := m.writeRecords(g, c); err != nil {
			return err
		}
	} else {
		modelCounts.PageGroups++
		modelCounts.Leftovers += min(leftover, 1)
		g.SetKind(logstore.PageGroup)
		b.WritePages(g)
		if _, err := g.Commit(uint64(records)); err != nil {
			return err
		}
		m.bear(group, c)
		m.count = records
		m.publish(c.seq, group, c.state)
		if err := m.sync(); err != nil {
			return err
		}
		b.InstallPages(group, records)
		return nil
	}
	m.count = records
	m.publish(c.seq, group, c.state)
	return nil
}

// longKey reports whether the key of a put is in its run. Applying such a put may read the run, so the run has
// to be written before.
func (m *model) longKey(op modelOp) bool {
	return op.version != 0 && op.kind != btree.Inline && m.records.refKeyLen(op.key) > 0
}

func (m *model) logRecords(g *logstore.Group, c *modelCommit) error {
	if err := m.writeRecords(g, c); err != nil {
		return err
	}
	_, records, err := m.apply(c)
	if err != nil {
		return err
	}
	m.count = records
	m.publish(c.seq, g.Number()-1, c.state)
	return nil
}

func (m *model) writeRecords(g *logstore.Group, c *modelCommit) error {
	g.Write(logstore.KindRecord, appendModelRedo(nil, c.seq, c.ops))
	group, err := g.Commit(uint64(len(c.ops)))
	if err == nil {
		m.bear(group, c)
	}
	return err
}

// writeRuns adds the runs of a commit's long values.
func (m *model) writeRuns(g *logstore.Group, c *modelCommit) {
	for i := range c.ops {
		op := &c.ops[i]
		key := m.records.keys[op.key][:m.records.refKeyLen(op.key)]
		payload := int64(len(key))
		switch {
		case op.version == 0 || op.kind == btree.Inline:
			continue
		case op.kind == btree.Extents:
			op.addr = g.List(0, key, c.lists[op.key])
			payload += logstore.ListBytes(len(c.lists[op.key]))
		default:
			value := slices.Clone(m.records.valueOf(op.key, op.version))
			op.addr = g.Run(0, key, value)
			payload += int64(len(value))
		}
		modelCounts.Runs++
		c.born = append(c.born, modelBorn{op.addr, payload})
	}
}

func (m *model) bear(group uint64, c *modelCommit) {
	for _, b := range c.born {
		m.p.Born(group, b.addr, b.payload, m.appliedSeq.Load()+1)
	}
	for _, l := range c.large {
		l.Publish(group, m.appliedSeq.Load()+1)
	}
}

func (m *model) apply(c *modelCommit) (*Batch, int64, error) {
	b := m.p.Begin(c.seq)
	r, err := btree.Apply(b, Root, m.treeOps(c.ops))
	return b, m.count + r.Added, err
}
