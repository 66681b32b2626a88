// Package inspect shows what stands in a database file, in the words of docs/format.md: superblocks, headers of segments, any page with the node,
// records or stream in it, the translation table and the space map of the newest checkpoint, the log group by group, and the way from the root to
// a key. The file need not be whole. What is shown is a list of parts, which the caller prints.
package inspect

import (
	"context"

	"flashdbm/internal/pagefile"
	"flashdbm/internal/salvage"
)

// A Part is something with named fields, and parts of its own.
type Part struct {
	Name   string
	Fields []Field
	Parts  []Part
	Line   bool // it is one of many alike: short enough for one line
}

// A Field is a string, a number, a bool, or bytes that a user stored: []byte.
type Field struct {
	Name  string
	Value any
}

func (p *Part) add(name string, value any) { p.Fields = append(p.Fields, Field{name, value}) }

// An Inspector shows parts of a file. Emit is called for each; an error of it ends what is shown. One goroutine uses it.
type Inspector struct {
	Emit func(Part) error

	f *pagefile.File
	r *salvage.Reading // nil: not needed so far
}

// New returns an Inspector of a file.
func New(f *pagefile.File, emit func(Part) error) *Inspector { return &Inspector{Emit: emit, f: f} }

// reading looks at all pages, once.
func (x *Inspector) reading(ctx context.Context) (*salvage.Reading, error) {
	if x.r == nil {
		r, err := salvage.Read(ctx, x.f)
		if err != nil {
			return nil, err
		}
		x.r = r
	}
	return x.r, nil
}
