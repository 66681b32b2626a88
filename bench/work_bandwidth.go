package main

// The share of the device's bandwidth that is left for payload: records of 1 KB in ascending order, a thousand of them in each durable
// transaction. The baseline writes as much by one pwrite into written space and one fdatasync.
func init() {
	addWork(&work{
		Place: 90, Name: "bandwidth", Title: "Sequential load, 16+1000 bytes ascending, 1,000 per durable transaction", Durable: true, Disk: true, Raw: true,
		Rows: append([]row{{Metric: "payload_mb", Title: "payload, MB/s", Unit: "MB/s"}, {Metric: "device_mb", Title: "written, MB/s", Unit: "MB/s"}}, writeRows...),
		Run: func(c *Cell) error {
			if err := c.Open(OpenOptions{Durable: true, Clients: 1}); err != nil {
				return err
			}
			d := &drive{shape: shape{16, 1000, true}, clients: 1, perTx: 1000, perPack: 1, total: c.scaled(500_000)}
			if err := d.insertAll(c); err != nil {
				return err
			}
			m := c.result.Metrics
			c.set("payload_mb", m["rate"]*1016/1e6)
			c.set("device_mb", m["written_bytes"]/(m["seconds"]+m["close_s"])/1e6)
			return nil
		},
	})
}
