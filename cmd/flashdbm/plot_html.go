package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"html/template"
	"strings"

	"flashdbm/dbm"
)

//go:embed plot.html
var plotPage string

// plotTemplate is the page around the picture. The picture is complete without its script, which only shows the
// numbers of a cell.
var plotTemplate = template.Must(template.New("plot").Parse(plotPage))

// plotData is the data of the page's script. Lengths are in pixels of the picture, sizes of the file in bytes.
type plotData struct {
	Left     int        `json:"left"`
	Tops     [2]int     `json:"tops"` // of the two maps
	Side     int        `json:"side"` // of a cell
	Columns  int        `json:"columns"`
	Each     int        `json:"each"` // segments of a cell
	Segments int        `json:"segments"`
	Newest   uint64     `json:"newest"` // group
	Cells    []plotCell `json:"cells"`
}

// plotCell describes a cell for the script.
type plotCell struct {
	What  string `json:"what"`
	Live  int64  `json:"live"`  // bytes
	Space int64  `json:"space"` // bytes of what is in use
	Group uint64 `json:"group"` // newest, 0 if it is not known
}

// what says in words what is in a cell.
func (c *cell) what() string {
	used := c.segments - c.absent - c.free
	var parts []string
	count := func(n int, one string) {
		switch {
		case n == 0:
		case c.segments == 1:
			parts = append(parts, one)
		default:
			parts = append(parts, formatCount(int64(n))+" "+one)
		}
	}
	count(used-c.values, "log")
	count(c.values, "values")
	count(c.free, "free")
	count(c.absent, "given back")
	if c.tail {
		parts = append(parts, "the log ends here")
	}
	return strings.Join(parts, ", ")
}

// writeHTML writes a page with the picture, which shows the numbers of the cell under the mouse.
func (p *filePicture) writeHTML(w *bufio.Writer) error {
	g := p.layout()
	var picture strings.Builder
	buffered := bufio.NewWriter(&picture)
	tops, err := p.drawSVG(buffered, &g)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return err
	}
	_, newest := p.groups()
	data := plotData{Left: margin, Tops: tops, Side: g.side, Columns: g.columns, Each: g.each, Segments: len(p.segments), Newest: newest, Cells: []plotCell{}}
	for i := range g.cells {
		c := &g.cells[i]
		data.Cells = append(data.Cells, plotCell{c.what(), c.live, c.space, c.newest})
	}
	encoded, err := json.Marshal(data) // escapes <, > and &, so the data stays within its element
	if err != nil {
		return err
	}
	return plotTemplate.Execute(w, struct {
		Name    string
		Stats   dbm.Stats
		Picture template.HTML
		Data    template.JS
	}{p.name, p.stats, template.HTML(picture.String()), template.JS(encoded)})
}
