package main

import (
	"fmt"
	"image/color"
	"math"

	"flashdbm/dbm"
)

// filePicture is the picture of plot: a title, and two maps of the file with their legends.
type filePicture struct {
	name     string
	stats    dbm.Stats
	segments []dbm.Segment
}

// canvas draws a picture. Units are pixels, from the upper left.
type canvas interface {
	rect(x, y, w, h int, c color.RGBA)
	frame(x, y, w, h int, c color.RGBA) // inside the rectangle
	text(x, y int, size textSize, s string)
}

type textSize int

// Scales of the dot matrix.
const (
	smallText textSize = 2
	largeText textSize = 3
)

func (t textSize) width(s string) int { return len(s) * glyphColumns * int(t) }

const (
	pictureWidth = 1240
	margin       = 20
	mapWidth     = pictureWidth - 2*margin
	mapHeight    = 420 // at the most
	largestCell  = 40  // used for a file of few segments
	smallestCell = 4
	lineHeight   = 26
)

// Colours. The hue shows the kind of a segment, the depth of the colour how much
// of the segment is live.
var (
	paper     = color.RGBA{255, 255, 255, 255}
	ink       = color.RGBA{34, 34, 34, 255}
	tailFrame = color.RGBA{214, 39, 40, 255}

	absentColour = color.RGBA{255, 255, 255, 255}
	freeColour   = color.RGBA{226, 239, 218, 255}
	logDead      = color.RGBA{222, 222, 226, 255}
	logLive      = color.RGBA{8, 64, 129, 255}
	valuesDead   = color.RGBA{245, 226, 208, 255}
	valuesLive   = color.RGBA{166, 73, 4, 255}
	ageNew       = color.RGBA{253, 231, 37, 255}
	ageMiddle    = color.RGBA{33, 145, 140, 255}
	ageOld       = color.RGBA{68, 1, 84, 255}
	unknownAge   = color.RGBA{238, 238, 238, 255}
	absentBorder = color.RGBA{190, 190, 190, 255}
)

// cell is one field of a map: one segment, or several neighbours.
type cell struct {
	segments             int
	absent, free, values int
	live, space          int64 // of the segments that are neither absent nor free, in bytes
	newest               uint64
	tail                 bool
}

// grid is the arrangement of the cells of a map.
type grid struct {
	cells   []cell
	each    int // segments of a cell
	side    int // of a cell in pixels
	columns int
}

func (g *grid) rows() int { return (len(g.cells) + g.columns - 1) / g.columns }

func (p *filePicture) layout() grid {
	n := max(len(p.segments), 1)
	side := int(math.Sqrt(float64(mapWidth) * mapHeight / float64(n)))
	g := grid{side: min(max(side, smallestCell), largestCell)}
	g.columns = mapWidth / g.side
	most := g.columns * (mapHeight / g.side)
	g.each = (n + most - 1) / most
	for from := 0; from < len(p.segments); from += g.each {
		g.cells = append(g.cells, cellOf(p.segments[from:min(from+g.each, len(p.segments))]))
	}
	return g
}

func cellOf(segments []dbm.Segment) cell {
	c := cell{segments: len(segments)}
	for _, s := range segments {
		switch s.Kind {
		case dbm.SegmentAbsent:
			c.absent++
			continue
		case dbm.SegmentFree, dbm.SegmentNext:
			c.free++
			continue
		case dbm.SegmentValues:
			c.values++
		case dbm.SegmentTail:
			c.tail = true
		}
		c.live += s.Live
		c.space += s.Bytes
		c.newest = max(c.newest, s.Group)
	}
	return c
}

// content is the colour of a cell in the upper map.
func (c *cell) content() color.RGBA {
	used := c.segments - c.absent - c.free
	switch {
	case c.absent > c.free && c.absent > used:
		return absentColour
	case c.free >= used:
		return freeColour
	}
	dead, live := logDead, logLive
	if 2*c.values > used {
		dead, live = valuesDead, valuesLive
	}
	if c.live == 0 {
		return dead
	}
	// Even a small live share should be visible.
	return blend(dead, live, 0.12+0.88*float64(c.live)/float64(c.space))
}

// age returns the colour of a cell in the lower map; oldest and newest are the oldest and the newest group known.
func (c *cell) age(oldest, newest uint64) color.RGBA {
	switch {
	case c.space == 0:
		return c.content()
	case c.newest == 0:
		return unknownAge
	}
	return ageColour(float64(newest-c.newest) / float64(max(newest-oldest, 1)))
}

// ageColour returns the colour for an age from 0 (just written) to 1 (the oldest).
func ageColour(age float64) color.RGBA {
	if age < 0.5 {
		return blend(ageNew, ageMiddle, 2*age)
	}
	return blend(ageMiddle, ageOld, 2*age-1)
}

func blend(a, b color.RGBA, share float64) color.RGBA {
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a) + (float64(b)-float64(a))*share)) }
	return color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
}

// height returns the height of the picture in pixels.
func (p *filePicture) height(g *grid) int {
	return margin + 3*lineHeight + 6 + margin/2 + 2*(2*lineHeight+4+g.rows()*g.side) + 2*margin
}

// draw draws the picture on a blank canvas, and returns where the cells of its two maps begin.
func (p *filePicture) draw(c canvas, g *grid) (tops [2]int) {
	y := margin
	c.text(margin, y, largeText, p.name)
	y += lineHeight + 6
	size, scale := p.summary(g)
	c.text(margin, y, smallText, size)
	y += lineHeight
	c.text(margin, y, smallText, scale)
	y += lineHeight + margin/2
	oldest, newest := p.groups()
	tops[0] = y + 2*lineHeight + 4
	y = p.drawMap(c, g, y, "content: how much of each segment is alive", p.contentLegend, func(f *cell) color.RGBA { return f.content() })
	tops[1] = y + margin + 2*lineHeight + 4
	p.drawMap(c, g, y+margin, fmt.Sprintf("age: groups of the log since a segment was written, of %s", formatCount(int64(newest-oldest))),
		p.ageLegend, func(f *cell) color.RGBA { return f.age(oldest, newest) })
	return tops
}

// summary describes the file, and the meaning of a cell.
func (p *filePicture) summary(g *grid) (size, scale string) {
	var segment, given int64
	for _, s := range p.segments {
		segment = s.Bytes
		if s.Kind == dbm.SegmentAbsent {
			given += s.Bytes
		}
	}
	size = fmt.Sprintf("%s, %s of disk: %s live, %s free", formatRecords(p.stats.Records),
		formatBytes(p.stats.FileBytes), formatBytes(p.stats.LiveBytes), formatBytes(p.stats.FreeBytes))
	if given > 0 {
		size += fmt.Sprintf("; %s given back", formatBytes(given))
	}
	scale = fmt.Sprintf("%s segments of %s, from the start of the file; a cell is one", formatCount(int64(len(p.segments))), formatBytes(segment))
	if g.each > 1 {
		scale = fmt.Sprintf("%s segments of %s, from the start of the file; a cell is %s, %s", formatCount(int64(len(p.segments))),
			formatBytes(segment), formatCount(int64(g.each)), formatBytes(int64(g.each)*segment))
	}
	return size, scale
}

// groups returns the oldest and the newest group known.
func (p *filePicture) groups() (oldest, newest uint64) {
	oldest = math.MaxUint64
	for _, s := range p.segments {
		if s.Group > 0 && s.Kind != dbm.SegmentAbsent && s.Kind != dbm.SegmentFree && s.Kind != dbm.SegmentNext {
			oldest, newest = min(oldest, s.Group), max(newest, s.Group)
		}
	}
	return min(oldest, newest), newest
}

// drawMap draws one map and returns the y coordinate of its end.
func (p *filePicture) drawMap(c canvas, g *grid, y int, title string, legend func(canvas, int), colour func(*cell) color.RGBA) int {
	c.text(margin, y, smallText, title)
	legend(c, y+lineHeight)
	y += 2*lineHeight + 4
	gap := 0
	if g.side > smallestCell {
		gap = 1
	}
	for i := 0; i < len(g.cells); {
		// If there is no gap between cells, neighbours of one colour are drawn as one rectangle.
		row, column := i/g.columns, i%g.columns
		fill, n := colour(&g.cells[i]), 1
		for gap == 0 && column+n < g.columns && i+n < len(g.cells) && colour(&g.cells[i+n]) == fill {
			n++
		}
		x, top := margin+column*g.side, y+row*g.side
		c.rect(x, top, n*g.side-gap, g.side-gap, fill)
		if fill == absentColour && gap > 0 {
			c.frame(x, top, g.side-gap, g.side-gap, absentBorder)
		}
		i += n
	}
	for i := range g.cells {
		if g.cells[i].tail {
			x, top := margin+i%g.columns*g.side, y+i/g.columns*g.side
			for grow := range max(2, g.side/10) {
				c.frame(x-grow-1, top-grow-1, g.side+2*grow+2-gap, g.side+2*grow+2-gap, tailFrame)
			}
		}
	}
	return y + g.rows()*g.side
}

// A legend is a row of samples.

func sample(c canvas, x, y int, fill color.RGBA, label string) int {
	c.rect(x, y, 18, 16, fill)
	c.frame(x, y, 18, 16, absentBorder)
	c.text(x+24, y, smallText, label)
	return x + 24 + smallText.width(label) + 26
}

func ramp(c canvas, x, y int, from, to string, colour func(share float64) color.RGBA) int {
	c.text(x, y, smallText, from)
	x += smallText.width(from) + 6
	const steps, step = 12, 9
	for i := range steps {
		c.rect(x+i*step, y, step, 16, colour(float64(i)/(steps-1)))
	}
	x += steps*step + 6
	c.text(x, y, smallText, to)
	return x + smallText.width(to) + 26
}

func (p *filePicture) contentLegend(c canvas, y int) {
	x := ramp(c, margin, y, "log, dead", "live", func(share float64) color.RGBA { return blend(logDead, logLive, share) })
	x = ramp(c, x, y, "values, dead", "live", func(share float64) color.RGBA { return blend(valuesDead, valuesLive, share) })
	x = sample(c, x, y, freeColour, "free")
	x = sample(c, x, y, absentColour, "given back")
	p.tailLegend(c, x, y)
}

func (p *filePicture) ageLegend(c canvas, y int) {
	x := ramp(c, margin, y, "just written", "oldest", ageColour)
	x = sample(c, x, y, unknownAge, "unknown")
	x = sample(c, x, y, freeColour, "free")
	x = sample(c, x, y, absentColour, "given back")
	p.tailLegend(c, x, y)
}

func (p *filePicture) tailLegend(c canvas, x, y int) {
	for grow := range 2 {
		c.frame(x+grow, y+grow, 18-2*grow, 16-2*grow, tailFrame)
	}
	c.text(x+24, y, smallText, "end of log")
}
