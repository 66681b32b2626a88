package main

import "fmt"

var latencyRows = []row{
	{Metric: "rate", Title: "commits/s", Unit: "/s"},
	{Metric: "p50_us", Title: "p50, µs", Unit: "µs"},
	{Metric: "p99_us", Title: "p99, µs", Unit: "µs"},
	{Metric: "p99.9_us", Title: "p99.9, µs", Unit: "µs"},
}

// Random durable updates, one record per transaction: from one goroutine over a million records, and from many over a hundred thousand.
func init() {
	addUpdates("rand1", "Random durable updates of 1 M records of 16+100 bytes, one per transaction", 1, 1_000_000, 0)
	for _, clients := range []int{16, 64} {
		addUpdates(fmt.Sprintf("conc%d", clients),
			fmt.Sprintf("%d goroutines, each updating one random record of 100,000 per durable transaction", clients), clients, 100_000, 0)
	}
	for _, commits := range []int{50, 5000} {
		addSynced(commits)
	}
	addUpdates("hot16", "16 goroutines, each updating one of 16 hot records of 100,000 per durable transaction", 16, 100_000, 16)
}

func addUpdates(name, title string, clients, records, hot int) {
	addWork(&work{
		Place: 20, Name: name, Title: title, Durable: true, Disk: true, Raw: true,
		Rows: append(append([]row{}, latencyRows...), writeRows...),
		Run: func(c *Cell) error {
			n := records
			if n > 100_000 {
				n = c.scaled(n)
			}
			d := &drive{shape: smallShape, clients: clients, perTx: 1, perPack: 1}
			d.pick = func(r *random) int { return r.below(n) }
			if hot > 0 {
				d.pick = func(r *random) int { return r.below(hot) }
			}
			if err := d.track(n); err != nil {
				return err
			}
			if err := c.Fill(smallShape, n, OpenOptions{Durable: true, Clients: clients}); err != nil {
				return err
			}
			return d.updateAll(c, n)
		},
	})
}

// addSynced adds one goroutine whose commits need no sync, and that has all of them made durable by one sync after a number of them. Where a store has a call
// by which a commit that nobody waits for becomes durable, a variant uses that.
func addSynced(commits int) {
	addWork(&work{
		Place: 20, Name: fmt.Sprintf("sync%d", commits), Disk: true, Raw: true, Extra: []string{"flashdbm-async"},
		Title: fmt.Sprintf("Random updates of 100,000 records of 16+100 bytes, one per transaction without a sync, and a sync behind each %d", commits),
		Rows:  append(append([]row{}, latencyRows...), writeRows...),
		Run: func(c *Cell) error {
			const n = 100_000
			d := &drive{shape: smallShape, clients: 1, perTx: 1, perPack: commits, synced: true}
			d.pick = func(r *random) int { return r.below(n) }
			if err := d.track(n); err != nil {
				return err
			}
			if err := c.Fill(smallShape, n, OpenOptions{Clients: 1}); err != nil {
				return err
			}
			return d.updateAll(c, n)
		},
	})
}
