package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flashdbm/dbm"

	"github.com/stretchr/testify/require"
)

// pictureOf returns the picture of an invented file of n segments.
func pictureOf(n int) filePicture {
	p := filePicture{name: "made-up.fdbm", stats: dbm.Stats{Records: int64(n) * 7000, FileBytes: int64(n) << 20, LiveBytes: int64(n) << 19, FreeBytes: 1 << 20}}
	for i := range n {
		s := dbm.Segment{Kind: dbm.SegmentLog, Bytes: 1 << 20, Live: int64((i*i/3+i)%257) << 12, Group: uint64(1 + i)}
		switch k := i * 40 / n; {
		case i == n/3:
			s.Kind = dbm.SegmentTail
		case i == n/3+1 && n > 2:
			s = dbm.Segment{Kind: dbm.SegmentNext, Bytes: 1 << 20}
		case k == 5 || k == 22:
			s = dbm.Segment{Kind: dbm.SegmentFree, Bytes: 1 << 20}
		case k == 30:
			s = dbm.Segment{Kind: dbm.SegmentAbsent, Bytes: 1 << 20}
		case k == 12 || k == 13:
			s.Kind = dbm.SegmentValues
		}
		p.segments = append(p.segments, s)
	}
	return p
}

// boundsCanvas detects drawing outside the picture and counts colors.
type boundsCanvas struct {
	t      *testing.T
	height int
	area   map[color.RGBA]int
	texts  []string
	frames int
}

func (b *boundsCanvas) inside(x, y, w, h int, what string) {
	if x < 0 || y < 0 || w <= 0 || h <= 0 || x+w > pictureWidth || y+h > b.height {
		b.t.Errorf("%s at %d,%d of %dx%d leaves the picture of %dx%d", what, x, y, w, h, pictureWidth, b.height)
	}
}

func (b *boundsCanvas) rect(x, y, w, h int, c color.RGBA) {
	b.inside(x, y, w, h, "a rectangle")
	b.area[c] += w * h
}

func (b *boundsCanvas) frame(x, y, w, h int, c color.RGBA) {
	b.inside(x, y, w, h, "a frame")
	if c == tailFrame {
		b.frames++
	}
}

func (b *boundsCanvas) text(x, y int, size textSize, s string) {
	b.inside(x, y, size.width(s), glyphRows*int(size), s)
	b.texts = append(b.texts, s)
}

func TestPictureFits(t *testing.T) {
	inTurn(t)
	sizes := []int{0, 1, 3, 40, 1000, 31_499, 31_500, 31_501, 1_000_000}
	if testing.Short() {
		sizes = []int{0, 3, 40, 31_501}
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			p := pictureOf(n)
			g := p.layout()
			sum := 0
			for _, c := range g.cells {
				sum += c.segments
			}
			require.Equal(t, n, sum)
			b := &boundsCanvas{t: t, height: p.height(&g), area: map[color.RGBA]int{}}
			require.LessOrEqual(t, b.height, 1200)
			p.draw(b, &g)
			if n >= 40 {
				for _, c := range []color.RGBA{freeColour, absentColour} {
					require.Positive(t, b.area[c])
				}
			}
			if n > 0 {
				require.Greater(t, b.frames, 4, "the tail in both maps, and in the legends")
				require.Contains(t, strings.Join(b.texts, "\n"), "end of log")
			}
			var svg bytes.Buffer
			w := bufio.NewWriter(&svg)
			require.NoError(t, p.writeSVG(w))
			require.NoError(t, w.Flush())
			require.Less(t, svg.Len(), 5<<20)
			decoder := xml.NewDecoder(&svg)
			for {
				_, err := decoder.Token()
				if err == io.EOF {
					break
				}
				require.NoError(t, err)
			}
			var image bytes.Buffer
			require.NoError(t, p.writePNG(&image))
			decoded, err := png.Decode(&image)
			require.NoError(t, err)
			require.Equal(t, b.height, decoded.Bounds().Dy())
			if dir := os.Getenv("FLASHDBM_PICTURES"); dir != "" { // for a person to look at
				file, err := os.Create(filepath.Join(dir, fmt.Sprintf("%d.png", n)))
				require.NoError(t, err)
				require.NoError(t, png.Encode(file, decoded))
				require.NoError(t, file.Close())
			}
		})
	}
}

// TestCellColours: each kind of segment, and each share of live data, has its color.
func TestCellColours(t *testing.T) {
	one := func(kind string, live int64) color.RGBA {
		c := cellOf([]dbm.Segment{{Kind: kind, Bytes: 1 << 20, Live: live, Group: 5}})
		return c.content()
	}
	require.Equal(t, absentColour, one(dbm.SegmentAbsent, 0))
	require.Equal(t, freeColour, one(dbm.SegmentFree, 0))
	require.Equal(t, logDead, one(dbm.SegmentLog, 0))
	require.Equal(t, logLive, one(dbm.SegmentLog, 1<<20))
	require.Equal(t, valuesDead, one(dbm.SegmentValues, 0))
	require.Equal(t, valuesLive, one(dbm.SegmentValues, 1<<20))
	little := one(dbm.SegmentLog, 4096)
	require.Greater(t, int(logDead.R)-int(little.R), 15, "one live page is to be seen")
	for live := int64(0); live < 1<<20; live += 64 << 10 {
		require.Greater(t, one(dbm.SegmentLog, live).R, one(dbm.SegmentLog, live+64<<10).R)
	}
	require.Equal(t, ageNew, ageColour(0))
	require.Equal(t, ageOld, ageColour(1))
}

func TestPlot(t *testing.T) {
	inTurn(t)
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "a", "1")
	dir := t.TempDir()
	svg, image := filepath.Join(dir, "a.svg"), filepath.Join(dir, "a.PNG")
	require.Empty(t, succeed(t, "plot", db, "--file", svg))
	require.Empty(t, succeed(t, "plot", db, "--file", image))
	require.Contains(t, readFile(t, svg), filepath.Base(db))
	decoded, err := png.Decode(strings.NewReader(readFile(t, image)))
	require.NoError(t, err)
	require.Equal(t, pictureWidth, decoded.Bounds().Dx())
	fail(t, exitUsage, []string{".svg, .png or .html"}, "plot", db)
	fail(t, exitUsage, []string{".svg, .png or .html"}, "plot", db, "--file", "a.gif")
	fail(t, exitError, []string{"no database"}, "plot", db+".missing", "--file", svg)
}

// TestPlotPage: the page contains the picture unchanged, numbers for each cell that agree with the segments, and
// nothing that a browser would fetch. The name of a file cannot break out of its place in the page.
func TestPlotPage(t *testing.T) {
	for _, n := range []int{0, 1, 40, 70_000} {
		p := pictureOf(n)
		p.name = `</script><script>alert(1)</script>"'&.fdbm`
		var page, svg strings.Builder
		w := bufio.NewWriter(&page)
		require.NoError(t, p.writeHTML(w))
		require.NoError(t, w.Flush())
		w = bufio.NewWriter(&svg)
		require.NoError(t, p.writeSVG(w))
		require.NoError(t, w.Flush())
		text := page.String()
		require.Contains(t, text, svg.String())
		require.NotContains(t, text, "<script>alert")
		require.Equal(t, 1, strings.Count(text, "</script>"))
		for _, outside := range []string{"src=", "href=", "url(", "@import", "fetch("} {
			require.NotContains(t, text, outside)
		}
		from := strings.Index(text, "const plot = ") + len("const plot = ")
		var data plotData
		require.NoError(t, json.NewDecoder(strings.NewReader(text[from:])).Decode(&data))
		var live, want int64
		for _, c := range data.Cells {
			live += c.Live
			require.NotEmpty(t, c.What)
		}
		for _, s := range p.segments {
			if s.Kind == dbm.SegmentLog || s.Kind == dbm.SegmentValues || s.Kind == dbm.SegmentTail {
				want += s.Live
			}
		}
		require.Equal(t, want, live)
		require.Equal(t, n, data.Segments)
		require.Len(t, data.Cells, (n+data.Each-1)/data.Each)
	}
}
