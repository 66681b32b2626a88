package inspect

import (
	"context"
	"errors"
	"fmt"

	"flashdbm/internal/salvage"
	"flashdbm/logstore"
)

type salvageGroup = salvage.Group

var errEnough = errors.New("as many as were asked for")

// Log shows at most limit groups of the log (0: all), from group number from on. Groups whose pages were all
// overwritten are not found.
func (x *Inspector) Log(ctx context.Context, from uint64, limit int) error {
	r, err := x.reading(ctx)
	if err != nil {
		return err
	}
	shown := 0
	b := make([]byte, logstore.PageSize)
	err = r.Groups(from, func(g salvageGroup) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if shown++; limit > 0 && shown > limit {
			return errEnough
		}
		p := Part{Name: fmt.Sprintf("group %d", g.No)}
		p.add("kind", groupKindOf(g.Kind))
		p.add("whole", g.Whole)
		for _, a := range g.Pages {
			h, err := x.f.ReadSound(a, b)
			if err != nil {
				return err
			}
			if h.Last {
				p.add("pages", h.Pages)
				p.add("count", h.Count)
			}
			p.Parts = append(p.Parts, pageLine(a, &h, x.f.Span(a, &h, b)))
		}
		return x.Emit(p)
	})
	if err == errEnough {
		return nil
	}
	return err
}

// Table shows the translation table of the newest complete checkpoint.
func (x *Inspector) Table(ctx context.Context) error {
	r, err := x.reading(ctx)
	if err != nil {
		return err
	}
	last, table, _ := r.Checkpoint()
	if last == 0 {
		return errors.New("no checkpoint of the file is whole")
	}
	p := Part{Name: "translation table"}
	p.add("of the checkpoint that ends in group", last)
	p.add("base", table.Base)
	p.add("born", table.Born)
	for _, t := range table.Trees {
		p.add("root", nameOf(t.Root))
		p.add("records", t.Records)
	}
	p.add("entries", len(table.Entries))
	p.add("behind", table.Base-table.Redo)
	for i, e := range table.Entries {
		l := Part{Name: fmt.Sprintf("entry %d", i), Line: true}
		l.add("name", nameOf(e.Name))
		l.add("address", e.Addr)
		p.Parts = append(p.Parts, l)
	}
	return x.Emit(p)
}

// Space shows the space map of the newest complete checkpoint.
func (x *Inspector) Space(ctx context.Context) error {
	r, err := x.reading(ctx)
	if err != nil {
		return err
	}
	last, _, space := r.Checkpoint()
	if last == 0 {
		return errors.New("no checkpoint of the file is whole")
	}
	p := Part{Name: "space map"}
	p.add("of the checkpoint that ends in group", last)
	p.add("segments", len(space))
	states := [...]string{"absent", "free", "in use", "private"}
	for n := range space {
		e := &space[n]
		l := Part{Name: fmt.Sprintf("segment %d", n), Line: true}
		l.add("state", states[e.State%4])
		if e.State != 0 {
			live, values := 0, 0
			for i := range uint64(x.f.SegmentPages) {
				if e.IsLive(i) {
					live++
				}
			}
			for _, m := range e.Masks {
				for ; m != 0; m &= m - 1 {
					values++
				}
			}
			l.add("salt", fmt.Sprintf("%016x", e.Salt))
			l.add("sequence", e.Sequence)
			l.add("last group", e.Written)
			l.add("live pages", live)
			if values > 0 {
				l.add("logged values", values)
			}
		}
		p.Parts = append(p.Parts, l)
	}
	return x.Emit(p)
}
