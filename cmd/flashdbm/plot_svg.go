package main

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"image/color"
	"strings"
)

// svgCanvas writes each element when it is drawn. A bufio.Writer keeps its
// first error, which the caller of writeSVG gets from Flush.
type svgCanvas struct{ w *bufio.Writer }

func (p *filePicture) writeSVG(w *bufio.Writer) error {
	g := p.layout()
	_, err := p.drawSVG(w, &g)
	return err
}

// drawSVG writes the picture, and returns where the cells of its two maps begin.
func (p *filePicture) drawSVG(w *bufio.Writer, g *grid) (tops [2]int, err error) {
	height := p.height(g)
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" shape-rendering="crispEdges">`+"\n", pictureWidth, height, pictureWidth, height)
	c := svgCanvas{w}
	c.rect(0, 0, pictureWidth, height, paper)
	tops = p.draw(c, g)
	_, err = w.WriteString("</svg>\n")
	return tops, err
}

func hexColour(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

func (c svgCanvas) rect(x, y, w, h int, fill color.RGBA) {
	fmt.Fprintf(c.w, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", x, y, w, h, hexColour(fill))
}

func (c svgCanvas) frame(x, y, w, h int, line color.RGBA) {
	fmt.Fprintf(c.w, `<path d="M%d.5 %d.5h%dv%dh-%dz" fill="none" stroke="%s"/>`+"\n", x, y, w-1, h-1, w-1, hexColour(line))
}

// text is set in a font of fixed width, as wide as the dot matrix.
func (c svgCanvas) text(x, y int, size textSize, s string) {
	var escaped strings.Builder
	xml.EscapeText(&escaped, []byte(s)) // a strings.Builder does not fail
	fmt.Fprintf(c.w, `<text x="%d" y="%d" font-family="monospace" font-size="%d" textLength="%d" lengthAdjust="spacingAndGlyphs" fill="%s">%s</text>`+"\n",
		x, y+7*int(size), 10*int(size), size.width(s), hexColour(ink), escaped.String())
}
