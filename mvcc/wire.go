package mvcc

import (
	"cmp"
	"sync"

	"flashdbm/internal/overlay"
	"flashdbm/logstore"
)

// logParts are the parts that a commit needs which does not change the tree.
type logParts struct {
	*file
	marks   *watermarks
	readers *readers
	token   *token
	room    *room
	log     *redoLog
}

// treeParts are those parts, and the ones that change the tree and write it.
type treeParts struct {
	logParts
	tree        *tree
	pressure    *pressure
	checkpoints *checkpointer
	flusher     *flusher
}

// assemble makes the parts of an engine and wires them together.
func assemble(opts *Options, store *logstore.Store) *Engine {
	e := &Engine{file: file{opts: *opts, store: store}}
	f, marks, readers, token, room, log := &e.file, &e.marks, &e.readers, &e.token, &e.room, &e.log
	tree, pressure, checkpoints, flusher := &e.tree, &e.pressure, &e.checkpoints, &e.flusher
	cleaner, maintenance, admission := &e.cleaner, &e.maintenance, &e.admission
	committer := &e.committer

	marks.file, readers.file, room.file = f, f, f
	log.file, log.marks, log.readers, log.token, log.room = f, marks, readers, token, room
	tree.logParts = logParts{f, marks, readers, token, room, log}
	pressure.logParts, pressure.tree = tree.logParts, tree
	checkpoints.logParts, checkpoints.tree, checkpoints.pressure = tree.logParts, tree, pressure
	flusher.logParts, flusher.tree, flusher.pressure, flusher.checkpoints = tree.logParts, tree, pressure, checkpoints
	cleaner.treeParts = treeParts{tree.logParts, tree, pressure, checkpoints, flusher}
	maintenance.treeParts, maintenance.cleaner = cleaner.treeParts, cleaner
	admission.treeParts, admission.cleaner, admission.maintenance = cleaner.treeParts, cleaner, maintenance
	committer.treeParts, committer.maintenance, committer.admission = cleaner.treeParts, maintenance, admission
	committer.resolver.file, committer.resolver.marks, committer.resolver.readers = f, marks, readers
	e.recovery.treeParts = cleaner.treeParts

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
	tree.ceiling.Store(opts.MemoryLimit)
	tree.sets.budget.Init(opts.spillBytes())
	tree.publishView(0, 0)
	pressure.excess.held.Init()
	cleaner.scattered.often = scanOften(opts)
	maintenance.wake = make(chan struct{}, 1)
	if !opts.Store.ReadOnly { // nobody looks for conflicts there, and a reader beside a writer is assembled again and again
		committer.resolver.writes.Init(cmp.Or(opts.LastSlots, lastSlots), recentKeys)
	}
	committer.gate.Init()
	readers.places.freed = make(chan struct{}, 1)
	committer.async.init(committer)
	committer.changed.init(opts)
	for _, p := range poolsOf(e) {
		*p = new(sync.Pool)
	}
	return e
}
