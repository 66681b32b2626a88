package mvcc

import (
	"cmp"

	"flashdbm/internal/overlay"
	"flashdbm/logstore"
)

// assemble makes the parts of an engine and wires them together.
func assemble(opts *Options, store *logstore.Store) *Engine {
	e := &Engine{file: file{opts: *opts, store: store}}
	f, marks, readers, token, room, log := &e.file, &e.marks, &e.readers, &e.token, &e.room, &e.log
	tree, pressure, checkpoints, flusher := &e.tree, &e.pressure, &e.checkpoints, &e.flusher
	cleaner, maintenance, admission := &e.cleaner, &e.maintenance, &e.admission
	committer, recovery := &e.committer, &e.recovery

	marks.file = f
	readers.file = f
	room.file = f
	log.file, log.marks, log.readers, log.token, log.room = f, marks, readers, token, room
	tree.file, tree.marks, tree.readers, tree.token, tree.room, tree.log = f, marks, readers, token, room, log
	pressure.file, pressure.marks, pressure.readers, pressure.room, pressure.log, pressure.tree = f, marks, readers, room, log, tree
	checkpoints.file, checkpoints.marks, checkpoints.readers, checkpoints.token, checkpoints.log, checkpoints.tree, checkpoints.pressure = f, marks, readers, token, log, tree, pressure
	flusher.file, flusher.marks, flusher.readers, flusher.token, flusher.room, flusher.log, flusher.tree, flusher.pressure, flusher.checkpoints = f, marks, readers, token, room, log, tree, pressure, checkpoints
	cleaner.file, cleaner.marks, cleaner.readers, cleaner.room, cleaner.log, cleaner.tree, cleaner.pressure, cleaner.checkpoints, cleaner.flusher = f, marks, readers, room, log, tree, pressure, checkpoints, flusher
	maintenance.file, maintenance.marks, maintenance.readers, maintenance.token, maintenance.log, maintenance.tree, maintenance.pressure, maintenance.checkpoints, maintenance.flusher, maintenance.cleaner = f, marks, readers, token, log, tree, pressure, checkpoints, flusher, cleaner
	admission.file, admission.marks, admission.readers, admission.room, admission.log, admission.tree, admission.pressure, admission.checkpoints, admission.flusher, admission.cleaner, admission.maintenance = f, marks, readers, room, log, tree, pressure, checkpoints, flusher, cleaner, maintenance
	committer.file, committer.marks, committer.readers, committer.token, committer.room, committer.log, committer.tree, committer.pressure, committer.checkpoints, committer.flusher, committer.maintenance, committer.admission = f, marks, readers, token, room, log, tree, pressure, checkpoints, flusher, maintenance, admission
	committer.resolver.file, committer.resolver.marks, committer.resolver.readers = f, marks, readers
	recovery.file, recovery.marks, recovery.readers, recovery.token, recovery.room, recovery.log, recovery.tree, recovery.pressure, recovery.checkpoints, recovery.flusher = f, marks, readers, token, room, log, tree, pressure, checkpoints, flusher

	token.init(&committer.resolver.list, log.logIfWanted)
	room.unwritten = pressure.unwritten
	marks.viewAt = &marks.applied
	if opts.Durability == Durable && !opts.Store.Beside {
		marks.viewAt = &marks.durable
	}
	marks.moved.Init()
	log.syncDue = make(chan struct{}, 1)
	tree.tables.active = overlay.NewMemtable()
	tree.tables.backgroundFrom = backgroundFrom(opts)
	tree.tables.backgroundAt = tree.tables.backgroundFrom
	tree.ceiling.Store(opts.MemoryLimit)
	tree.sets.budget.Init(opts.spillBytes())
	tree.publishView(0, 0)
	pressure.excess.held.Init()
	pressure.crowd.waiters.Init()
	cleaner.scattered.often = scanOften(opts)
	maintenance.wake = make(chan struct{}, 1)
	committer.resolver.writes.Init(cmp.Or(opts.LastSlots, lastSlots))
	committer.gate.Init()
	committer.async.init(committer)
	return e
}
