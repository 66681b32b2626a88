package main

import (
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

var (
	oursColor     = color.RGBA{0xc0, 0x39, 0x2b, 0xff}
	baselineColor = color.RGBA{0x7f, 0x8c, 0x8d, 0xff}
	peerColor     = color.RGBA{0x2c, 0x6f, 0xa8, 0xff}
)

func init() { plot.DefaultFont.Variant = "Sans" } // drawn by the viewer, which has one of these widths

// plotWork draws the first metric of a workload: a bar for each store, the best on top, and a line for the range of its rounds.
func (d *dataset) plotWork(path string, w *work, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	first := rows[0]
	scale := max(first.Scale, 1)
	type bar struct {
		store string
		spread
	}
	var bars []bar
	for _, store := range d.stores(w.Name) {
		if s := d.spread(w.Name, store, first.Metric); s.n > 0 {
			bars = append(bars, bar{store, s})
		}
	}
	slices.SortStableFunc(bars, func(a, b bar) int {
		if a.median < b.median {
			return -1
		}
		return 1
	})
	p := plot.New()
	p.X.Label.Text = first.Title
	p.X.Min = 0
	highest := 0.0
	names := make([]string, len(bars))
	for i, b := range bars {
		highest = max(highest, b.high/scale)
		names[i] = "\u00a0\u00a0" + b.store + "     " // room for a viewer whose letters are wider
		chart, err := plotter.NewBarChart(plotter.Values{b.median / scale}, vg.Points(11))
		if err != nil {
			return err
		}
		chart.Horizontal, chart.XMin, chart.LineStyle.Width = true, float64(i), 0
		chart.Color = peerColor
		switch {
		case isOurs(b.store):
			chart.Color = oursColor
		case engines[b.store].Baseline:
			chart.Color = baselineColor
		}
		p.Add(chart)
		line, err := plotter.NewLine(plotter.XYs{{X: b.low / scale, Y: float64(i)}, {X: b.high / scale, Y: float64(i)}})
		if err != nil {
			return err
		}
		p.Add(line)
	}
	p.NominalY(names...)
	p.Y.Tick.Label.Font.Size = 9
	p.Y.Padding = vg.Points(4)
	p.Y.Min, p.Y.Max = -0.7, float64(len(bars))-0.3
	p.X.Tick.Marker, p.X.Max = shortTicks{}, max(highest*1.04, 1e-9)
	return p.Save(14*vg.Centimeter, vg.Points(float64(50+16*len(bars))), path)
}

// roundNumber leaves out what says nothing in the label of a tick.
var roundNumber = strings.NewReplacer(".00 ", " ", ".0 ", " ")

// shortTicks labels the default ticks as the tables do.
type shortTicks struct{}

func (shortTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = roundNumber.Replace(number(ticks[i].Value))
			if ticks[i].Value == 0 {
				ticks[i].Label = "0"
			}
		}
	}
	return ticks
}
