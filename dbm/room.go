package dbm

// Room returns how many bytes of the file commits may still take before one gets ErrFull: those that are free in it, and those that it may
// grow by, as Options.MaxFileSize and the device allow. What deletes and background work need to go on is not counted in. It is 0 for who cannot write.
//
// What a put takes of it is more than its key and value, and is not known before. A commit reserves the log for them and the pages of the
// tree that they change; that the log's part comes back later, and what becomes of pages that are overwritten, Room tells only then. Records put
// in the order of their keys come to take 1.1 times their keys and values, in random order up to twice as much; so a third of Room is a careful
// figure for what can be put, and a quarter for a single transaction.
//
// It takes under a microsecond, and no lock under which anybody waits for a device. What others leave of the device is asked for once a second.
func (db *DB) Room() int64 {
	if db.beside != nil {
		return 0
	}
	return db.engine.Room()
}
