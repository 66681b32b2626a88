package mvcc

// redoBytes counts the bytes of record groups. Baton holder.
type redoBytes struct {
	total int64
	bases []redoBase // of flushes, oldest first: where redo starts, and what it may start behind later
}

// redoBase is a group, and the bytes up to it.
type redoBase struct {
	group uint64
	bytes int64
}

// recovered notes that redo starts behind the given group; what is added from now on comes after it.
func (r *redoBytes) recovered(group uint64) {
	*r = redoBytes{bases: []redoBase{{group: group}}}
}

// add notes bytes of the group that comes next.
func (r *redoBytes) add(bytes int64) { r.total += bytes }

// base notes that all groups so far, up to the given one, are below the base of a flush that begins.
func (r *redoBytes) base(group uint64) {
	r.bases = append(r.bases, redoBase{group, r.total})
}

// start notes that redo starts behind the given group, a base.
func (r *redoBytes) start(group uint64) {
	n := 0
	for n+1 < len(r.bases) && r.bases[n+1].group <= group {
		n++
	}
	r.bases = append(r.bases[:0], r.bases[n:]...)
}

// since returns the bytes that an open would redo.
func (r *redoBytes) since() int64 { return r.total - r.bases[0].bytes }

// sinceBase returns the bytes since the last flush began.
func (r *redoBytes) sinceBase() int64 { return r.total - r.bases[len(r.bases)-1].bytes }
