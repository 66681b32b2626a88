package inspect

import (
	"context"
	"fmt"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
	"flashdbm/logstore"
	"flashdbm/override"
)

// Page shows what a page is, and what it holds.
func (x *Inspector) Page(ctx context.Context, a uint64) error {
	if a >= x.f.Pages {
		return fmt.Errorf("there is no page %d: the file has %d", a, x.f.Pages)
	}
	b := make([]byte, logstore.PageSize)
	if err := x.f.Read(a, b); err != nil {
		return err
	}
	n := x.f.SegmentOf(a)
	if !x.f.Segment(n).Known {
		if _, err := x.reading(ctx); err != nil {
			return err
		}
	}
	p := Part{Name: fmt.Sprintf("page %d", a)}
	p.add("byte", a*logstore.PageSize)
	p.add("segment", n)
	switch {
	case a < 2:
		p.Parts = append(p.Parts, superblock(int(a), &x.f.Supers[a], x.f.Newest() == &x.f.Supers[a]))
		return x.Emit(p)
	case a == x.f.FirstPage(n)+logstore.HeaderPage(n):
		if h, ok := logstore.DecodeSegmentHeader(b); ok {
			p.Parts = append(p.Parts, header(&h))
		} else {
			p.add("header", "damaged, or absent")
		}
		return x.Emit(p)
	}
	h, ok := x.f.Sound(a, b)
	p.add("checksum", map[bool]string{true: "right", false: "wrong for a page of the log: damaged, raw, free, or of an earlier life of the segment"}[ok])
	if !ok && !h.InLog() {
		return x.Emit(p)
	}
	p.Parts = append(p.Parts, mux(&h))
	if ok {
		if err := x.body(&p, a, &h, b); err != nil {
			p.add("damaged", err.Error())
		}
	}
	return x.Emit(p)
}

func mux(h *logstore.PageHead) Part {
	p := Part{Name: "mux area"}
	p.add("CRC", fmt.Sprintf("%08x", h.CRC))
	p.add("kind", kindOf(h.Kind))
	flags := ""
	for _, f := range []struct {
		set  bool
		name string
	}{{h.Last, "last"}, {h.Open, "open"}, {h.Grows, "growing"}} {
		if f.set {
			flags += f.name + ", "
		}
	}
	p.add("flags", flags+groupKindOf(h.Group))
	if h.Lag == logstore.NoClaim {
		p.add("lag", "no claim")
	} else {
		p.add("lag", h.Lag)
	}
	switch {
	case h.Grows:
		p.add("end", h.End)
	case h.Kind == logstore.KindRecord:
		s, _ := logstore.DecodeSpan(h.Name)
		p.add("span", fmt.Sprintf("%d logged values, %d raw pages, CRC %08x", s.Values, s.RawPages, s.CRC))
	default:
		p.add("name", nameOf(h.Name))
	}
	p.add("group", h.No)
	p.add("pages", h.Pages)
	p.add("count", h.Count)
	p.add("digest", fmt.Sprintf("%08x", h.Digest))
	return p
}

// body shows the content of a sound page.
func (x *Inspector) body(p *Part, a uint64, h *logstore.PageHead, b []byte) error {
	switch h.Kind {
	case logstore.KindTree:
		if err := btree.CheckPage(b); err != nil {
			return err
		}
		p.Parts = append(p.Parts, node(btree.View(b)))
	case logstore.KindRun:
		r, ok := logstore.DecodeRunHead(b, x.f.SegmentPages)
		run := Part{Name: "value run"}
		run.add("length", r.Bytes)
		run.add("checksum", fmt.Sprintf("%08x", r.CRC))
		run.add("form", map[bool]string{false: "a value", true: "a list of extents"}[r.List])
		if !ok {
			run.add("damaged", "no run is that long")
		}
		p.Parts = append(p.Parts, run)
	case logstore.KindRecord:
		span := x.f.Span(a, h, b)
		whole := make([]byte, span*logstore.PageSize)
		if err := x.f.Read(a, whole); err != nil {
			return err
		}
		logstore.CutGrowing(whole)
		p.Parts = append(p.Parts, records(whole[logstore.MuxSize:])...)
	case logstore.KindFlush:
		if end, err := override.DecodeFlushEnd(b[logstore.MuxSize:], h.No); err == nil {
			p.Parts = append(p.Parts, flushEnd(&end))
		} else if !h.Last {
			p.add("stream", "a piece of a flush stream that takes several pages")
		} else {
			p.add("stream", "the end of a flush stream that takes several pages, or none that can be read")
		}
	}
	return nil
}

func node(n btree.Node) Part {
	p := Part{Name: "node"}
	p.add("level", n.Level())
	p.add("n", n.Count())
	for i := range n.Count() {
		line := Part{Name: fmt.Sprintf("child %d", i), Line: true}
		if n.IsLeaf() {
			line.Name = fmt.Sprintf("record %d", i)
			c := n.Cell(i)
			line.add("key", c.Key())
			if c.IsLong() {
				line.add("key length", c.Ref().KeyLen)
			}
			value(&line, c)
		} else {
			if s, cut := n.Separator(i, nil); i > 0 {
				line.add("separator", s)
				if cut {
					line.add("cut", true)
				}
			}
			line.add("name", nameOf(n.Child(i)))
		}
		p.Parts = append(p.Parts, line)
	}
	return p
}

// value shows the value of a record, or where it is.
func value(p *Part, c btree.Cell) {
	ref := c.Ref()
	switch c.Kind() {
	case btree.Inline:
		p.add("value", c.Value())
	case btree.Run:
		p.add("value length", ref.ValueLen)
		p.add("in a value run, page", ref.ID)
	case btree.Extents:
		p.add("value length", ref.ValueLen)
		p.add("in extents, listed in page", ref.ID)
	case btree.Logged:
		p.add("value length", ref.ValueLen)
		place := logstore.Place(ref.ID)
		p.add("logged, in page", place.Addr())
		p.add("byte", place.Offset())
		p.add("ordinal", place.Ordinal())
	}
}

// records shows the redo records of a stream, if the stream begins with a record.
func records(stream []byte) (parts []Part) {
	no := 0
	err := redo.ReadAt(stream, func(op btree.Op, from, _ int, logged bool) {
		p := Part{Name: fmt.Sprintf("redo record %d", no), Line: true}
		no++
		p.add("byte", logstore.MuxSize+from)
		switch {
		case op.Delete:
			p.add("record", "delete")
		case logged:
			p.add("record", "put of a logged value")
		case op.Ref == nil:
			p.add("record", "put")
		case op.Ref.Kind == btree.Run:
			p.add("record", "put of a value in a run")
		default:
			p.add("record", "put of a value in extents")
		}
		p.add("key", op.Key)
		if op.Ref != nil {
			p.add("value length", op.Ref.ValueLen)
			p.add("address", op.Ref.ID)
		} else if !op.Delete {
			p.add("value", op.Value)
		}
		parts = append(parts, p)
	}, func(s redo.Special) {
		p := Part{Name: fmt.Sprintf("redo record %d", no), Line: true}
		no++
		if s.Range != nil {
			p.add("record", "range")
			p.add("from", s.Range.From)
			if s.Range.To != nil {
				p.add("to", s.Range.To)
			}
		} else if s.Drop != nil {
			p.add("record", "owned, or lost")
			p.add("address", s.Drop.ID)
		} else {
			p.add("record", "layer")
			p.add("addresses", fmt.Sprint(s.Layer))
		}
		parts = append(parts, p)
	})
	if err != nil {
		p := Part{Name: "the rest", Line: true}
		p.add("what", "part of a record that begins or ends in another page")
		parts = append(parts, p)
	}
	return parts
}

func flushEnd(end *override.FlushEnd) Part {
	p := Part{Name: "flush stream"}
	p.add("base", end.Base)
	p.add("first part", end.First)
	p.add("born", end.Born)
	for _, t := range end.Trees {
		p.add("records", t.Records)
	}
	p.add("retired", len(end.Retired))
	p.add("removed", len(end.Removed))
	p.add("deaths", len(end.Deaths))
	p.add("behind", end.Base-end.Redo)
	line := func(kind string, i int) *Part {
		p.Parts = append(p.Parts, Part{Name: fmt.Sprintf("%s %d", kind, i), Line: true})
		return &p.Parts[len(p.Parts)-1]
	}
	for i, r := range end.Retired {
		l := line("retired name", i)
		l.add("name", nameOf(r.Name))
		l.add("address", r.Addr)
	}
	for i, name := range end.Removed {
		line("removed name", i).add("name", nameOf(name))
	}
	for i := range end.Deaths {
		d := &end.Deaths[i]
		l := line("death", i)
		l.add("address", d.Addr)
		if mask, ok := d.MaskOfDeath(); ok {
			l.add("logged values", fmt.Sprintf("%016b", mask))
		} else {
			l.add("pages", d.Pages)
		}
	}
	return p
}
