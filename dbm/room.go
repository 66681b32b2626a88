package dbm

// Room returns how many bytes of the file commits may take before one gets ErrFull: what is free in the file, and
// what it may grow by, as Options.MaxFileSize and the device allow. It does not include what deletes and background
// work need. It is 0 for a handle that cannot write.
//
// A put takes more of this room than the bytes of its key and value; how much more is not known in advance. A
// commit reserves space in the log for the key and the value, and space for the tree pages that it changes. The
// space in the log becomes free again later, as do overwritten pages; Room does not include them before. In the
// end, records put in key order take 1.1 times their keys and values, records put in random order up to twice
// their keys and values. So a careful estimate of what can be put is a third of Room, or a quarter for a single
// transaction.
//
// Room takes less than a microsecond, and takes no lock that is held during device accesses. It asks for the
// device's free space at most once a second.
func (db *DB) Room() int64 {
	if db.beside != nil {
		return 0
	}
	return db.engine.Room()
}
