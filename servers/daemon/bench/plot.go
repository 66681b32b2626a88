package main

import (
	"fmt"
	"slices"
	"strings"
)

// plot draws two groups of bars for each row: transactions a second as a multiple of the base's, and the base's
// processor time divided by the system's.
func plot(s *section, table [][]measured) []byte {
	const height, bar, gap, left, top, legend, heading = 220.0, 14.0, 24.0, 46.0, 46.0, 210.0, 250.0
	most := 1.0
	ratio := func(r, i, what int) float64 {
		if what == 0 {
			return table[r][i].ratio
		}
		return table[r][i].cheaper
	}
	for r := range s.rows {
		for i := range s.systems {
			most = max(most, ratio(r, i, 0), ratio(r, i, 1))
		}
	}
	group := float64(len(s.systems))*bar + gap
	half := max(float64(len(s.rows))*group, heading) + 2*gap
	var b strings.Builder
	width := left + 2*half + legend
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="11"><rect width="100%%" height="100%%" fill="white"/><text x="8" y="16" font-size="13">%s</text>`+"\n", width, height+top+40, s.name)
	for what, title := range []string{"transactions/s, of the " + s.base + "'s", "the " + s.base + "'s processor time by the system's"} {
		x0 := left + float64(what)*half
		fmt.Fprintf(&b, `<text x="%.0f" y="34">%s</text>`+"\n", x0, title)
		for step := 0.0; step <= most; step += max(0.5, float64(int(most/6))) {
			y := top + height*(1-step/most)
			fmt.Fprintf(&b, `<line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%.0f" y="%.1f" text-anchor="end">%.1f</text>`+"\n", x0, x0+half-2*gap, y, y, x0-4, y+4, step)
		}
		for r, row := range s.rows {
			x := x0 + float64(r)*group
			for i := range s.systems {
				h := height * ratio(r, i, what) / most
				fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.0f" height="%.1f" fill="%s"/>`+"\n", x+float64(i)*bar, top+height-h, bar-2, h, colour(s.systems, i))
			}
			fmt.Fprintf(&b, `<text x="%.1f" y="%.0f" text-anchor="middle">%s</text>`+"\n", x+(group-gap-2)/2, top+height+16, row)
		}
	}
	for i, name := range s.systems {
		y := top + 10 + 18*float64(i)
		fmt.Fprintf(&b, `<rect x="%.0f" y="%.0f" width="10" height="10" fill="%s"/><text x="%.0f" y="%.0f">%s</text>`+"\n", width-legend, y, colour(s.systems, i), width-legend+16, y+9, name)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

var colours = []string{"#777", "#2a78b5", "#3aa655", "#d1662f", "#8e5bb5", "#b5a02a", "#40a0a0", "#b54a7a", "#6a8f3a", "#3a4f8f", "#c9a27a", "#222", "#9ab"}

// colour returns the colour of a system; it is the same in all figures that have that system.
func colour(systems []string, i int) string {
	known := []string{socket, getPlus, getStar, locking, sends, small, smallTCP, smallSnd, hybrid, lockRing, lockSend, hybrdTCP, hybrdSnd}
	if at := slices.Index(known, systems[i]); at >= 0 {
		return colours[at]
	}
	return colours[i%len(colours)]
}
