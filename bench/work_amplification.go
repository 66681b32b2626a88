package main

import "time"

// Bytes written per byte of payload: 5 M random updates of 1 M records from 64 goroutines, one durable transaction each. All that the
// process writes from the first update to the end of Close counts: log, flushes, cleaning, checkpoints, zeroing ahead.
func init() {
	addWork(&work{
		Place: 70, Name: "bytes", Title: "5 M random updates of 1 M records of 16+100 bytes from 64 goroutines, one per durable transaction", Durable: true, Disk: true,
		Stores: []string{"flashdbm", "flashdbm-redo128m", "pebble", "leveldb", "rocksdb"},
		Rows: []row{
			{Metric: "written_per_byte", Title: "written per byte of payload", Unit: "x"},
			{Metric: "rate", Title: "commits/s", Unit: "/s"},
			{Metric: "records", Title: "updates", Unit: ""},
			{Metric: "disk_per_byte", Title: "space per byte", Unit: "x"},
		},
		Run: func(c *Cell) error {
			n := c.scaled(1_000_000)
			d := &drive{
				shape: smallShape, clients: 64, perTx: 1, perPack: 1, total: c.scaled(5_000_000),
				pick: func(r *random) int { return r.below(n) },
			}
			// The bar is about 5 M updates, so the time that other cells have is not enough here.
			c.timeLimit = 4 * time.Minute
			if err := d.track(n); err != nil {
				return err
			}
			if err := c.Fill(smallShape, n, OpenOptions{Durable: true, Clients: 64}); err != nil {
				return err
			}
			return d.updateAll(c, n)
		},
	})
}
