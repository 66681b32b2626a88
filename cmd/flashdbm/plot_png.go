package main

import (
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
)

// pngCanvas draws into an image in memory.
type pngCanvas struct{ img *image.RGBA }

func (p *filePicture) writePNG(w io.Writer) error {
	g := p.layout()
	c := pngCanvas{image.NewRGBA(image.Rect(0, 0, pictureWidth, p.height(&g)))}
	c.rect(0, 0, pictureWidth, p.height(&g), paper)
	p.draw(c, &g)
	return png.Encode(w, c.img)
}

func (c pngCanvas) rect(x, y, w, h int, fill color.RGBA) {
	draw.Draw(c.img, image.Rect(x, y, x+w, y+h), image.NewUniform(fill), image.Point{}, draw.Src)
}

func (c pngCanvas) frame(x, y, w, h int, line color.RGBA) {
	c.rect(x, y, w, 1, line)
	c.rect(x, y+h-1, w, 1, line)
	c.rect(x, y, 1, h, line)
	c.rect(x+w-1, y, 1, h, line)
}

// text draws characters of the dot matrix; any other character becomes a question mark.
func (c pngCanvas) text(x, y int, size textSize, s string) {
	dot := int(size)
	for _, r := range s {
		if r < ' ' || int(r-' ') >= len(dotMatrix) {
			r = '?'
		}
		for column, dots := range dotMatrix[r-' '] {
			for row := range glyphRows {
				if dots>>row&1 != 0 {
					c.rect(x+column*dot, y+row*dot, dot, dot, ink)
				}
			}
		}
		x += glyphColumns * dot
	}
}
