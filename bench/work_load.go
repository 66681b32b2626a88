package main

// Loading: records of 16+100 bytes in random order of keys, 1,000 per transaction, durable and not.
func init() {
	addLoad("load-durable", "Load in random order, 16+100 bytes, 1,000 per durable transaction", true, 300_000)
	addLoad("load", "Load in random order, 16+100 bytes, 1,000 per transaction, unsynced", false, 1_000_000)
}

func addLoad(name, title string, durable bool, records int) {
	addWork(&work{
		Place: 30, Name: name, Title: title, Durable: durable, Disk: true, Raw: durable,
		Rows: append([]row{{Metric: "rate", Title: "records/s", Unit: "/s"}}, writeRows...),
		Run: func(c *Cell) error {
			if err := c.Open(OpenOptions{Durable: durable, Clients: 1}); err != nil {
				return err
			}
			d := &drive{shape: smallShape, clients: 1, perTx: 1000, perPack: 1, total: records}
			if c.Quick {
				d.total = records / 3
			}
			return d.insertAll(c)
		},
	})
}
