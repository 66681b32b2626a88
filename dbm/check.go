package dbm

import (
	"context"

	"flashdbm/mvcc"
)

// Check reads the whole database and compares every page, name, order, count and the map of the space in the file. Problems are joined, at
// most 100; CheckAll reports all of them, and the keys that they cover. Commits and background work go on meanwhile.
func (db *DB) Check(ctx context.Context) error {
	return db.maintain(func(e *mvcc.Engine) error { return e.Check(ctx) })
}

// DamageScope says which keys a Damage covers.
type DamageScope = mvcc.DamageScope

const (
	DamagedKeys   = mvcc.DamagedKeys   // those from From on and below To, or to the end if To is empty
	DamagedRecord = mvcc.DamagedRecord // the one with the key From
	DamagedSpace  = mvcc.DamagedSpace  // none: counts, names, or the map of the space in the file
)

// A Damage is one thing that CheckAll found wrong.
type Damage struct {
	Page     uint64 // index of the damaged page of 4,096 bytes in the file; 0 if it is not known, or if no page is damaged
	From, To []byte // keys that the damage covers, as Scope says: they cannot be read, and may or may not have been there
	Scope    DamageScope
	Err      error // wraps ErrCorrupt and says what is wrong
}

// CheckAll is Check that reports each problem by itself, as it is found, and the keys that it covers. It goes on to the end of the database,
// however many problems there are; keys that no Damage covers can be read. report is called by the same goroutine and may keep what it is
// given. Of a record whose key is longer than 1,000 bytes and cannot be read, From has the first 1,000.
//
// CheckAll returns nil if it came to the end, whatever it found: else the error of ctx, or what kept it from going on.
func (db *DB) CheckAll(ctx context.Context, report func(Damage)) error {
	return db.maintain(func(e *mvcc.Engine) error {
		return e.CheckAll(ctx, func(d mvcc.Damage) { report(Damage(d)) })
	})
}
