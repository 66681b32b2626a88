package dbm

import (
	"encoding/binary"
	"testing"

	"flashdbm/logstore"
)

// A census counts what crash tests have covered, so that a run that never had, say, a deep tree, a fold or a reused
// segment is noticed.
type census struct {
	images, same int   // distinct images that were recovered; those equal to an earlier one
	did          Stats // sums over all engines
	depth        int   // most crashes in succession
	height       int   // most levels of a tree
	turns        int   // most rounds of a log through its file: segments entered, divided by the number of segments
	private      int   // segments of large values at the end of scripts
	runs         int   // value runs at the end of scripts
	full         int
	deletes      int // deletes that found room in files with a size limit
	compacted    int
	layers       uint64 // layers of write sets that left memory
	layersRedone int    // opens that merged such layers
	cuts         int    // ranges of many leaves that were cut out
	cutsRedone   int    // opens that repeated such cuts
	early        uint64 // pages written before their batch was complete
	parts        uint64 // flushes that left leaves behind
	redoBefore   int    // opens whose redo began before the base
	redoBehind   int    // operations that ran while redo was pending after an open
	mergeImages  [3]int // images taken while a merge was under way, by durability
}

// look examines the pages of a runner's file.
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
	for d, n := range t.mergeImages {
		c.mergeImages[d] += n
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
		d.PagesCleaned, c.compacted, c.layers, c.layersRedone, c.cuts, c.cutsRedone, c.early, c.redoBehind, c.parts, c.redoBefore, c.mergeImages)
}

// enough returns a function that reports whether a test without a time of its own has recovered the given number of
// images.
func (c *census) enough(images int) func() bool {
	return func() bool { return *crashTime == 0 && c.images >= scaled(images) }
}

// missing names what has not happened yet.
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
		{"opens that left redo pending", uint64(c.redoBehind), 1}, {"images beside merges of Durable commits", uint64(c.mergeImages[Durable]), 1},
		{"images beside merges of WriteThrough commits", uint64(c.mergeImages[WriteThrough]), 1},
		{"images beside merges of Buffered commits", uint64(c.mergeImages[Buffered]), 1},
		{"levels of the tree", uint64(c.height), 3}, {"turns of the log", uint64(c.turns), 3}, {"crashes in a row", uint64(c.depth), maxCrashDepth},
	} {
		if x.n < x.least {
			all = append(all, x.what)
		}
	}
	return all
}
