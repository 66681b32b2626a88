package inspect

import (
	"context"
	"fmt"

	"flashdbm/internal/pagefile"
	"flashdbm/logstore"
)

// Superblocks shows both superblocks.
func (x *Inspector) Superblocks() error {
	for slot := range x.f.Supers {
		if err := x.Emit(superblock(slot, &x.f.Supers[slot], x.f.Newest() == &x.f.Supers[slot])); err != nil {
			return err
		}
	}
	return nil
}

func superblock(slot int, sb *pagefile.Superblock, newest bool) Part {
	p := Part{Name: fmt.Sprintf("superblock in page %d", slot)}
	if sb.Err != nil {
		p.add("damaged", sb.Err.Error())
		return p
	}
	p.add("newest", newest)
	p.add("segment pages", sb.SegmentPages)
	p.add("compatible features", fmt.Sprintf("%#x", sb.Compatible))
	p.add("incompatible features", fmt.Sprintf("%#x", sb.Incompatible))
	p.add("UUID", fmt.Sprintf("%x", sb.UUID))
	p.add("number", sb.Number)
	p.add("run", position(sb.Run))
	p.add("start", position(sb.Start))
	p.add("first group", sb.FirstGroup)
	p.add("last group", sb.LastGroup)
	p.add("lineage", fmt.Sprintf("%016x", sb.Lineage))
	return p
}

func position(p logstore.Position) string {
	return fmt.Sprintf("segment %d, page %d, group %d, digest %08x, check %08x", p.Segment, p.Page, p.Group, p.Digest, p.Check)
}

// File shows the file as a whole: its size, its segments and groups, the superblocks, and the newest checkpoint.
func (x *Inspector) File(ctx context.Context) error {
	r, err := x.reading(ctx)
	if err != nil {
		return err
	}
	p := Part{Name: "file"}
	p.add("bytes", x.f.Size)
	p.add("pages", x.f.Pages)
	p.add("segment pages", x.f.SegmentPages)
	p.add("UUID", fmt.Sprintf("%x", x.f.UUID))
	log, private, lost := 0, 0, 0
	for _, n := range x.f.Segments() {
		switch g := x.f.Segment(n); {
		case g.Private():
			private++
		case g.HasHeader:
			log++
		default:
			lost++
		}
	}
	p.add("segments of the log", log)
	p.add("private segments", private)
	p.add("segments without a header", lost)
	groups, damaged, last := 0, 0, uint64(0)
	err = r.Groups(1, func(g salvageGroup) error {
		groups++
		if !g.Whole {
			damaged++
		}
		last = g.No
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	p.add("groups", groups)
	p.add("groups that are not whole", damaged)
	p.add("last group", last)
	if err := x.Emit(p); err != nil {
		return err
	}
	if err := x.Superblocks(); err != nil {
		return err
	}
	checkpoint, table, space := r.Checkpoint()
	c := Part{Name: "newest checkpoint"}
	c.add("last group", checkpoint)
	c.add("base", table.Base)
	c.add("redo start", table.Redo)
	for _, tree := range table.Trees {
		c.add("records", tree.Records)
	}
	c.add("entries", len(table.Entries))
	c.add("segments", len(space))
	return x.Emit(c)
}
