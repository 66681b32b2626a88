package main

import "fmt"

// The paper's workload: 4-byte ascending keys and 8-byte values, one and a hundred records per transaction, in memory without syncs and
// on the disk with one for each transaction.
func init() {
	for _, per := range []int{1, 100} {
		for _, durable := range []bool{false, true} {
			name, title := fmt.Sprintf("paper%d-mem", per), "tmpfs, unsynced"
			if durable {
				name, title = fmt.Sprintf("paper%d-disk", per), "disk, durable"
			}
			var extra []string
			if per == 1 && !durable {
				extra = []string{"flashdbm-update"}
			}
			addWork(&work{
				Place: 10, Name: name, Title: fmt.Sprintf("The paper's: ascending 4+8 bytes, %d per transaction, %s", per, title),
				Durable: durable, Disk: durable, Raw: durable, Extra: extra,
				Rows: append([]row{{Metric: "rate", Title: "records/s", Unit: "/s"}}, writeRows...),
				Run: func(c *Cell) error {
					if err := c.Open(OpenOptions{Durable: durable, Clients: 1}); err != nil {
						return err
					}
					d := &drive{shape: paperShape, clients: 1, perTx: per, perPack: max(1, 1000/per), total: c.scaled(1_000_000)}
					if durable {
						d.perPack = 1
					}
					return d.insertAll(c)
				},
			})
		}
	}
}

// writeRows are shown of every work that writes.
var writeRows = []row{
	{Metric: "close_s", Title: "close, s", Unit: "s"},
	{Metric: "disk_per_byte", Title: "space per byte", Unit: "x"},
	{Metric: "written_per_byte", Title: "written per byte", Unit: "x"},
	{Metric: "anon_peak_bytes", Title: "peak memory, MiB", Unit: "MiB", Scale: 1 << 20},
}

// insertAll drives inserts into an open store, closes it and verifies it.
func (d *drive) insertAll(c *Cell) error {
	c.Start()
	n, err := d.run(c)
	if err != nil {
		return err
	}
	if err := c.Done(); err != nil {
		return err
	}
	payload := float64(n * (d.keyLen + d.valueLen))
	c.set("disk_per_byte", c.result.Metrics["disk_bytes"]/payload)
	c.set("written_per_byte", c.result.Metrics["written_bytes"]/payload)
	return c.Verify(d.shape, n, sampleSize, d.accept)
}

// updateAll drives updates of a store of n records, closes it and verifies it.
func (d *drive) updateAll(c *Cell, n int) error {
	c.Start()
	written, err := d.run(c)
	if err != nil {
		return err
	}
	if err := c.Done(); err != nil {
		return err
	}
	record := float64(d.keyLen + d.valueLen)
	c.set("disk_per_byte", c.result.Metrics["disk_bytes"]/(float64(n)*record))
	c.set("written_per_byte", c.result.Metrics["written_bytes"]/(float64(written)*record))
	return c.Verify(d.shape, n, sampleSize, d.accept)
}
