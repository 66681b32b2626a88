package main

// The tail of commit latency with everything running, against the same work while nothing is due in the background: the variant without
// background work has limits that are never reached.
func init() {
	for _, clients := range []int{1, 16} {
		name, title := "tail1", "one goroutine"
		if clients > 1 {
			name, title = "tail16", "16 goroutines"
		}
		addWork(&work{
			Place: 80, Name: name, Title: "Tail of commit latency: random durable updates of 1 M records of 16+100 bytes, " + title, Durable: true, Disk: true,
			Stores: []string{"flashdbm", "flashdbm-nobackground"},
			Rows:   append([]row{{Metric: "p99.9_us", Title: "p99.9, µs", Unit: "µs"}, {Metric: "max_us", Title: "max, µs", Unit: "µs"}}, latencyRows[:3]...),
			Run: func(c *Cell) error {
				n := c.scaled(1_000_000)
				d := &drive{shape: smallShape, clients: clients, perTx: 1, perPack: 1, pick: func(r *random) int { return r.below(n) }}
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
}
