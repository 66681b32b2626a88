// Package inspect shows the content of a database file in the terms of docs/format.md: superblocks, headers of
// segments, any page with the node, records or stream in it, the translation table and the space map of the newest
// checkpoint, the log group by group, and the path from the root to a key. The file may be damaged. The result is a
// list of parts, which the caller prints.
package inspect

import (
	"context"

	"flashdbm/internal/pagefile"
	"flashdbm/internal/salvage"
)

// A Part is an item of the result: it has named fields, and may have parts of
// its own.
type Part struct {
	Name   string
	Fields []Field
	Parts  []Part
	Line   bool // one of many similar parts, short enough for one line
}

// A Field has a name and a value: a string, a number, a bool, or bytes that a user stored ([]byte).
type Field struct {
	Name  string
	Value any
}

func (p *Part) add(name string, value any) { p.Fields = append(p.Fields, Field{name, value}) }

// An Inspector shows parts of a file. It calls Emit for each; an error of Emit ends the call that shows parts. One
// goroutine at a time may use it.
type Inspector struct {
	Emit func(Part) error

	f *pagefile.File
	r *salvage.Reading // nil until it is needed
}

// New returns an Inspector of f.
func New(f *pagefile.File, emit func(Part) error) *Inspector { return &Inspector{Emit: emit, f: f} }

// reading returns the Reading of the file. The first call reads all pages.
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
