package dbm

// Room returns how many bytes of the file commits may take before one gets ErrFull: what is free in the file, and
// what it may grow by, as Options.MaxFileSize and the device allow. It does not include what deletes and background
// work need. It is 0 for a handle that cannot write.
//
// A put takes more of it than its key and value; how much is not known before. A commit reserves log for key and
// value, and the tree pages that they change. The log's part comes back later, and so do overwritten pages; Room
// includes them only then. In the end, records put in key order take 1.1 times their keys and values, records put
// in random order up to twice as much. So a careful estimate of what can be put is a third of Room, or a quarter
// for a single transaction.
//
// Room takes less than a microsecond, and no lock under which anybody waits for a device. The device's free space
// is asked for once a second.
func (db *DB) Room() int64 {
	if db.beside != nil {
		return 0
	}
	return db.engine.Room()
}
