package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A section is a figure of the report: a table of cells by row and system.
type section struct {
	name, file, what string
	rows             []string
	systems          []string
	base             string // the system to which ratios are taken
	cell             func(row int, system string) cell
	paper            string
}

func (b *bench) sections() []section {
	u := uniform{b.s.records}
	sizes := []int{4, 8, 16, 32, 64, 128}
	shares := []float64{0, 0.25, 0.5, 0.75, 1}
	var sizeRows, shareRows []string
	for _, n := range sizes {
		sizeRows = append(sizeRows, fmt.Sprint(n))
	}
	for _, f := range shares {
		shareRows = append(shareRows, fmt.Sprintf("%.0f %%", 100*f))
	}
	matrix := []string{socket, sends, getPlus, smallTCP, smallSnd, small, hybrdTCP, hybrdSnd, hybrid, locking, lockSend, lockRing}
	list := []section{
		{"Figure 4: carriers", "carriers", "95 % reads, transactions of 8 keys, uniform", []string{"8 keys"}, []string{socket, sends, getPlus, getStar, locking}, socket,
			func(_ int, s string) cell { return cell{s, 8, 0.95, u} }, "Send/Recv 2.39, ring 2.53 of the socket's transactions a second"},
		{"Figure 5: size of transactions", "sizes", "95 % reads, uniform; rows are keys of a transaction", sizeRows, []string{socket, getPlus, getStar, locking}, socket,
			func(r int, s string) cell { return cell{s, sizes[r], 0.95, u} }, "GET+ 2.07, GET* 2.78 at 4 keys"},
		{"Figure 6: reads only", "reads", "100 % reads, transactions of 8 keys, uniform", []string{"8 keys"}, []string{socket, getPlus, getStar, small, hybrid, locking, lockRing}, socket,
			func(_ int, s string) cell { return cell{s, 8, 1, u} }, "GET+ 1.94, GET* 2.69"},
		{"Figure 7: share of reads", "shares", "transactions of 8 keys, uniform; rows are the share of reads", shareRows, []string{socket, getPlus, getStar, locking}, socket,
			func(r int, s string) cell { return cell{s, 8, shares[r], u} }, "at 100 % reads GET+ 2.06, GET* 2.67; at 0 % GET+ and GET* the same"},
	}
	list = append(list, section{"Algorithms by carrier", "algorithms", "95 % reads, transactions of 8 keys, uniform; those without a carrier in their name are by ring, Send/Recv and socket alone are RAMP-Fast", []string{"8 keys"}, matrix, socket,
		func(_ int, s string) cell { return cell{s, 8, 0.95, u} }, "has RAMP-Fast by all, two-phase locking by sockets"})
	z := newScrambled(b.s.records)
	mixes := []struct {
		name  string
		share float64
	}{{"A", 0.5}, {"B", 0.95}, {"C", 1}}
	var rows []string
	var cells []cell
	for _, d := range []draw{z, u} {
		for _, m := range mixes {
			rows = append(rows, m.name+", "+d.name())
			cells = append(cells, cell{"", 4, m.share, d})
		}
	}
	return append(list, section{"YCSB with transactions of 4", "ycsb", "workloads A, B and C: 50, 95 and 100 % reads", rows, []string{socket, getPlus, getStar, locking}, socket,
		func(r int, s string) cell {
			c := cells[r]
			c.system = s
			return c
		}, "GET+ 2.06, GET* 2.67 at 100 % reads"})
}

// measured has the medians of a cell's rounds. Ratios are to the base in the same round and row, because other work
// on the machine then slows both.
type measured struct{ perSecond, micros, server, messages, reads, ratio, cheaper float64 }

func median(all []result, of func(*result) float64) float64 {
	list := make([]float64, len(all))
	for i := range all {
		list[i] = of(&all[i])
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// run measures a section; each round has all cells.
func (b *bench) run(s *section) [][]measured {
	all := make([][][]result, len(s.rows))
	for range b.s.rounds {
		for r := range s.rows {
			if all[r] == nil {
				all[r] = make([][]result, len(s.systems))
			}
			for i, name := range s.systems {
				c := s.cell(r, name)
				all[r][i] = append(all[r][i], b.measure(&c, b.s.each))
			}
		}
	}
	table := make([][]measured, len(s.rows))
	for r := range s.rows {
		base := all[r][slices.Index(s.systems, s.base)]
		for _, rs := range all[r] {
			ratios, cheaper := make([]float64, len(rs)), make([]float64, len(rs))
			for i := range rs {
				ratios[i], cheaper[i] = rs[i].perSecond()/base[i].perSecond(), base[i].micros()/rs[i].micros()
			}
			slices.Sort(ratios)
			slices.Sort(cheaper)
			table[r] = append(table[r], measured{
				median(rs, (*result).perSecond), median(rs, (*result).micros), median(rs, (*result).serverShare), median(rs, (*result).perTxn),
				median(rs, func(x *result) float64 { return float64(x.oneSided) / float64(cmp.Or(x.txns, 1)) }),
				ratios[len(ratios)/2], cheaper[len(cheaper)/2],
			})
		}
	}
	return table
}

// report measures all sections and writes report.md and a plot for each section.
func (b *bench) report() error {
	if err := os.MkdirAll(b.s.out, 0o755); err != nil {
		return err
	}
	began := time.Now()
	if err := b.load(b.systems[getPlus], 4); err != nil {
		return err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "# RAMP beside its baselines\n\nWritten by `make bench-ramp` on %s: %d processors, %d partitions in one process, %d goroutines of one client in another one, %d records of %d bytes,\n"+
		"memory mode. Each cell is the median of %d rounds of %v, each ratio the median of the ratios within a round. The two processes share the processors with each other and with whatever else runs, so transactions\na second are shown as they came; processor time and messages of a transaction say more.%s\n\n",
		time.Now().Format("2 January 2006"), runtime.NumCPU(), b.s.partitions, b.s.goroutines, b.s.records, b.s.value, b.s.rounds, b.s.each, load())
	for _, s := range b.sections() {
		if !strings.Contains(s.name, b.s.only) {
			continue
		}
		table := b.run(&s)
		if err := b.failed.Load(); err != nil {
			return *err
		}
		describe(&out, &s, table)
		fmt.Println(s.name)
		if err := os.WriteFile(filepath.Join(b.s.out, s.file+".svg"), plot(&s, table), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(&out, "All of it took %v.\n", time.Since(began).Round(time.Second))
	return os.WriteFile(filepath.Join(b.s.out, "report.md"), []byte(out.String()), 0o644)
}

// load describes how busy the machine is with other work before the run.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	words := strings.Fields(string(b))
	if err != nil || len(words) == 0 {
		return ""
	}
	return " When it began, " + words[0] + " threads were runnable or waited for a disk."
}

func describe(out *strings.Builder, s *section, table [][]measured) {
	fmt.Fprintf(out, "## %s\n\n%s. The paper: %s.\n\n", s.name, s.what, s.paper)
	out.WriteString("| | system | transactions/s | of the " + s.base + "'s | processor, µs | " + s.base + "'s by it | server, µs | messages | keys Read |\n|---|---|---|---|---|---|---|---|---|\n")
	for r, row := range s.rows {
		for i, name := range s.systems {
			m := table[r][i]
			fmt.Fprintf(out, "| %s | %s | %.0f | %.2f | %.1f | %.2f | %.1f | %.2f | %.2f |\n", row, name, m.perSecond, m.ratio, m.micros, m.cheaper, m.server, m.messages, m.reads)
		}
	}
	fmt.Fprintf(out, "\n![%s](%s.svg)\n\n", s.name, s.file)
}
