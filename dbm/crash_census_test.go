package dbm

import (
	"encoding/binary"
	"testing"

	"flashdbm/logstore"
)

// A census says what crash tests have been through, so that a run that never saw a deep tree, a fold or a reused segment is found out.
type census struct {
	images, same int   // images that differ from each other and were recovered; those that were like one before
	did          Stats // counts of all engines together
	depth        int   // crashes one after the other
	height       int   // levels of the tree, at most
	turns        int   // times that the log went through its file, at most, in segments entered by segments there are
	private      int   // segments of large values found at the end of scripts
	runs         int   // value runs found there
	full         int
	deletes      int // that found room on files with a limit
	compacted    int
	layers       uint64 // of write sets that left memory
	layersRedone int    // opens that merged such layers
	cuts         int    // ranges of many leaves that were cut
	cutsRedone   int    // opens that cut such ranges
	early        uint64 // pages written before their batch was whole
	parts        uint64 // flushes that left leaves behind
	redoBefore   int    // opens that began redo before the base
	redoBehind   int    // times that something went on while Open's redo was pending
	aside        [3]int // images taken while a merge was going on aside, by durability
}

// look reads the pages of a runner's file.
func (c *census) look(r *runner) {
	le := binary.LittleEndian
	file := content(r.mem, 0, fileSize(r.mem))
	segment := int(r.load.segmentPages) * logstore.PageSize
	var newest uint64
	for first := 0; first+segment <= len(file); first += segment {
		h := file[first:]
		if first == 0 {
			h = file[2*logstore.PageSize:]
		}
		salt, private := le.Uint64(h[16:]), h[5]&1 != 0
		if private {
			c.private++
			continue
		}
		newest = max(newest, le.Uint64(h[24:]))
		for at := first; at < first+segment; at += logstore.PageSize {
			p := file[at : at+logstore.PageSize]
			if !validPage(p, salt, int64(at/logstore.PageSize)) {
				continue
			}
			switch logstore.Kind(p[4]) {
			case logstore.KindTree:
				c.height = max(c.height, int(p[logstore.MuxSize])+1)
			case logstore.KindRun:
				c.runs++
			}
		}
	}
	if len(file) >= segment {
		c.turns = max(c.turns, int(newest)/(len(file)/segment))
	}
}

func (c *census) add(t *trial) {
	c.images += t.taken
	c.same += t.same
	c.full += t.timesFull
	c.deletes, c.compacted = c.deletes+t.deletes, c.compacted+t.compacted
	c.layers, c.layersRedone, c.early = c.layers+t.layers, c.layersRedone+t.layersRedone, c.early+t.early
	c.redoBehind += t.leftPending
	c.cuts, c.cutsRedone = c.cuts+t.cuts, c.cutsRedone+t.cutsRedone
	for d, n := range t.aside {
		c.aside[d] += n
	}
	c.parts, c.redoBefore = c.parts+t.parts, c.redoBefore+t.redoBefore
	c.depth = max(c.depth, t.deepest)
	o := &t.census
	c.height, c.turns, c.private, c.runs = max(c.height, o.height), max(c.turns, o.turns), c.private+o.private, c.runs+o.runs
	d, s := &c.did, &t.did
	d.Commits += s.Commits
	d.RecordGroups += s.RecordGroups
	d.PageGroups += s.PageGroups
	d.FlushGroups += s.FlushGroups
	d.Flushes += s.Flushes
	d.Folds += s.Folds
	d.Checkpoints += s.Checkpoints
	d.ReturnedBytes += s.ReturnedBytes
	d.PagesCleaned += s.PagesCleaned
}

func (c *census) report(t *testing.T, seeds int) {
	d := &c.did
	t.Logf("%d seeds, %d images, %d more like one before; %d commits, groups: %d record, %d page, %d flush; %d flushes, %d folds, %d checkpoints; "+
		"crashes in a row %d, levels %d, turns of the log %d, private segments %d, value runs %d, full files %d, %d deletes on limited ones, %d pages given back, %d cleaned, %d compactions, "+
		"%d layers of write sets, redone at %d opens, %d ranges cut, redone at %d opens, %d pages written early, %d times left with redo pending, %d flushes that left leaves behind, %d opens that redid for those, %v images beside merges aside", seeds, c.images, c.same, d.Commits,
		d.RecordGroups, d.PageGroups, d.FlushGroups, d.Flushes, d.Folds, d.Checkpoints, c.depth, c.height, c.turns, c.private, c.runs, c.full, c.deletes, d.ReturnedBytes/logstore.PageSize,
		d.PagesCleaned, c.compacted, c.layers, c.layersRedone, c.cuts, c.cutsRedone, c.early, c.redoBehind, c.parts, c.redoBefore, c.aside)
}

// enough returns what tells whether a test that has no time of its own has looked at so many images.
func (c *census) enough(images int) func() bool {
	return func() bool { return *crashTime == 0 && c.images >= scaled(images) }
}

// missing names what has not happened.
func (c *census) missing() (all []string) {
	d := &c.did
	for _, x := range []struct {
		what     string
		n, least uint64
	}{
		{"record groups", d.RecordGroups, 1}, {"page groups", d.PageGroups, 1}, {"flushes", d.Flushes, 1}, {"parts of flushes", d.FlushGroups - d.Flushes, 1},
		{"folds", d.Folds, 1}, {"checkpoints", d.Checkpoints, 1}, {"private segments", uint64(c.private), 1}, {"value runs", uint64(c.runs), 1},
		{"compactions", uint64(c.compacted), 1}, {"small deletes on files with a limit", uint64(c.deletes), 1}, {"pages given back", d.ReturnedBytes, 1},
		{"pages cleaned", d.PagesCleaned, 1}, {"full files", uint64(c.full), 1},
		{"layers of write sets", c.layers, 1}, {"opens that merged layers", uint64(c.layersRedone), 1}, {"pages written early", c.early, 1},
		{"ranges cut", uint64(c.cuts), 1}, {"opens that cut ranges", uint64(c.cutsRedone), 1},
		{"flushes that left leaves behind", c.parts, 1}, {"opens that redid for those", uint64(c.redoBefore), 1},
		{"opens that left redo pending", uint64(c.redoBehind), 1}, {"images beside merges aside of Durable commits", uint64(c.aside[Durable]), 1},
		{"images beside merges aside of WriteThrough commits", uint64(c.aside[WriteThrough]), 1},
		{"images beside merges aside of Buffered commits", uint64(c.aside[Buffered]), 1},
		{"levels of the tree", uint64(c.height), 3}, {"turns of the log", uint64(c.turns), 3}, {"crashes in a row", uint64(c.depth), maxCrashDepth},
	} {
		if x.n < x.least {
			all = append(all, x.what)
		}
	}
	return all
}
