package main

import (
	"bytes"
	"fmt"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// writePattern shows where on the device each store wrote over time.
func (d *dataset) writePattern(page *bytes.Buffer, dir string) error {
	page.WriteString("## Write pattern over time\n\nRandom durable updates, one per transaction, on an ext4 of its own on a loop device (the paper's figure 4). One recorded run; each dot is a write, " +
		"of all there were about 300 are drawn. Where the file system's own journal writes, there is a band of its own.\n\n")
	stores := d.stores("pattern")
	if len(stores) == 0 {
		page.WriteString("Not recorded.\n\n")
		return nil
	}
	page.WriteString("| store | commits | writes | a commit | bytes written, MiB | bytes a commit |\n|---|---|---|---|---|---|\n")
	for _, store := range stores {
		m := d.last("pattern", store).Metrics
		fmt.Fprintf(page, "| %s | %s | %s | %s | %s | %s |\n", store, number(m["commits"]), number(m["writes"]), number(m["writes"]/m["commits"]),
			number(m["bytes"]/(1<<20)), number(m["bytes"]/m["commits"]))
	}
	page.WriteString("\n")
	for _, store := range stores {
		r := d.last("pattern", store)
		points := make(plotter.XYs, len(r.Series["ms"]))
		for i := range points {
			points[i] = plotter.XY{X: r.Series["ms"][i], Y: r.Series["mib"][i]}
		}
		p := plot.New()
		p.Title.Text = store
		p.X.Label.Text, p.Y.Label.Text = "ms", "MiB on the device"
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		dots.Shape, dots.Radius, dots.Color = draw.BoxGlyph{}, vg.Points(1), peerColor
		if isOurs(store) {
			dots.Color = oursColor
		}
		p.Add(dots)
		name := "pattern-" + store + ".svg"
		if err := p.Save(14*vg.Centimeter, 6*vg.Centimeter, filepath.Join(dir, name)); err != nil {
			return err
		}
		fmt.Fprintf(page, "![writes of %s](%s)\n\n", store, name)
	}
	return nil
}

// last returns the newest result of a store in a workload.
func (d *dataset) last(work, store string) (newest *Result) {
	for _, r := range d.results {
		if r.Work == work && r.Store == store && (newest == nil || r.When.After(newest.When)) {
			newest = r
		}
	}
	return newest
}
