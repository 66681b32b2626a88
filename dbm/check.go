package dbm

import (
	"context"

	"flashdbm/mvcc"
)

// Check reads the whole database and verifies every page, name, key order and count, and the file's space map.
// Commits and background work continue during the check. The error joins at most 100 problems; CheckAll reports
// all of them, with the keys that each one covers.
func (db *DB) Check(ctx context.Context) error {
	return db.maintain(func(e *mvcc.Engine) error { return e.Check(ctx) })
}

// DamageScope says which keys a Damage covers.
type DamageScope = mvcc.DamageScope

const (
	DamagedKeys   = mvcc.DamagedKeys   // all keys from From on and below To, or to the end if To is empty
	DamagedRecord = mvcc.DamagedRecord // the record with the key From
	DamagedSpace  = mvcc.DamagedSpace  // no key: a count, a name or the space map is wrong
)

// A Damage is one problem that CheckAll found.
type Damage struct {
	Page     uint64 // index of the damaged 4,096-byte page in the file; 0 if unknown, or if no page is damaged
	From, To []byte // keys covered by the damage, see Scope: they cannot be read, and may or may not have existed
	Scope    DamageScope
	Err      error // wraps ErrCorrupt and says what is wrong
}

// CheckAll verifies the same as Check, and reports each problem when it is found, with the keys that the problem
// covers. It goes on to the end of the database, however many problems there are; keys that no Damage covers can be
// read. report is called on the caller's goroutine and may keep its argument. If a record's key is longer than
// 1,000 bytes and cannot be read, From holds its first 1,000 bytes.
//
// CheckAll returns nil if it reached the end, whatever it found; otherwise the error of ctx, or the error that
// stopped it.
func (db *DB) CheckAll(ctx context.Context, report func(Damage)) error {
	return db.maintain(func(e *mvcc.Engine) error {
		return e.CheckAll(ctx, func(d mvcc.Damage) { report(Damage(d)) })
	})
}
