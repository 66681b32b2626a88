package inspect

import (
	"context"
	"fmt"

	"flashdbm/logstore"
)

// Segment shows the header of a segment, and its sound pages, one a line.
func (x *Inspector) Segment(ctx context.Context, n uint32) error {
	if x.f.FirstPage(n) >= x.f.Pages {
		return fmt.Errorf("there is no segment %d: the file has %d", n, (x.f.Pages+uint64(x.f.SegmentPages)-1)/uint64(x.f.SegmentPages))
	}
	g := x.f.Segment(n)
	if !g.Known {
		if _, err := x.reading(ctx); err != nil { // checkpoints and other headers may have the salt
			return err
		}
	}
	p := Part{Name: fmt.Sprintf("segment %d", n)}
	p.add("pages", fmt.Sprintf("%d to %d", x.f.FirstPage(n), min(x.f.FirstPage(n+1), x.f.Pages)-1))
	switch {
	case g.HasHeader:
		p.Parts = append(p.Parts, header(&g.Header))
	case g.Known:
		p.add("header", "damaged, or absent; the salt is known from checkpoints, other headers, or the pages themselves")
	default:
		p.add("header", "damaged, or absent")
	}
	err := x.f.EachSound(n, func(a uint64, h logstore.PageHead, b []byte) {
		p.Parts = append(p.Parts, pageLine(a, &h, x.f.Span(a, &h, b)))
	})
	if err != nil {
		return err
	}
	return x.Emit(p)
}

func header(h *logstore.SegmentHeader) Part {
	p := Part{Name: "header"}
	p.add("flags", map[bool]string{true: "private", false: "none"}[h.Private])
	p.add("segment", h.Segment)
	p.add("successor", h.Successor)
	p.add("salt", fmt.Sprintf("%016x", h.Salt))
	p.add("sequence", h.Sequence)
	p.add("predecessor", fmt.Sprintf("%016x", h.Predecessor))
	p.add("group", h.Group)
	p.add("index", h.Index)
	p.add("digest", fmt.Sprintf("%08x", h.Digest))
	p.add("UUID", fmt.Sprintf("%x", h.UUID))
	return p
}

// pageLine describes a page in one line.
func pageLine(a uint64, h *logstore.PageHead, span uint64) Part {
	p := Part{Name: fmt.Sprintf("page %d", a), Line: true}
	p.add("kind", kindOf(h.Kind))
	p.add("group", h.No)
	p.add("group kind", groupKindOf(h.Group))
	if h.Kind == logstore.KindTree {
		p.add("name", nameOf(h.Name))
	}
	if span > 1 {
		p.add("with raw pages", span)
	}
	if h.Last {
		p.add("last", true)
	}
	return p
}

func kindOf(k logstore.Kind) string {
	names := [...]string{1: "tree page", 2: "first page of a value run", 3: "redo stream", 4: "flush stream", 5: "checkpoint stream", 6: "segment header"}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("%d, reserved", k)
	}
	return names[k]
}

func groupKindOf(k logstore.GroupKind) string {
	names := [...]string{1: "record group", 2: "page group", 3: "part of a flush", 4: "part of a checkpoint"}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("%d, none", k)
	}
	return names[k]
}

// nameOf formats a name: in decimal if it is an address.
func nameOf(name logstore.PageID) string {
	switch name >> 62 {
	case 0, 1:
		return fmt.Sprint(name)
	case 2:
		return fmt.Sprintf("%#x, born name %d", name, name&(1<<62-1))
	}
	return fmt.Sprintf("%#x, root of tree %d", name, name&(1<<62-1))
}
