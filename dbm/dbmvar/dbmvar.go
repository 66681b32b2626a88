// Package dbmvar publishes the statistics of flashdbm databases as variables of the standard package expvar, so
// that a program that serves HTTP shows them under /debug/vars. It is a package of its own because expvar imports
// net/http.
package dbmvar

import (
	"errors"
	"expvar"
	"sync"

	"flashdbm/dbm"
)

// ErrTaken: another variable was published under the name.
var ErrTaken = errors.New("dbmvar: the name is taken by another variable")

// publishing serializes Publish, because expvar ends the process when a name is published twice.
var publishing sync.Mutex

// Publish shows the Stats of db, as a JSON object, in the variable of the given name. A second call with the same
// name replaces the database, so a program that closes a database and opens it again calls Publish again. A closed
// database shows zeros. ErrTaken: the name belongs to another variable; expvar cannot free a name. Any goroutine
// may call Publish at any time.
func Publish(name string, db *dbm.DB) error {
	publishing.Lock()
	defer publishing.Unlock()
	switch v := expvar.Get(name).(type) {
	case nil:
		expvar.Publish(name, &database{db: db})
	case *database:
		v.set(db)
	default:
		return ErrTaken
	}
	return nil
}

// database is the variable of one database.
type database struct {
	mu sync.RWMutex // guards db; held only while db is read or replaced
	db *dbm.DB
}

func (v *database) set(db *dbm.DB) {
	v.mu.Lock()
	v.db = db
	v.mu.Unlock()
}

// String returns the present Stats as JSON. It implements expvar.Var.
func (v *database) String() string {
	v.mu.RLock()
	db := v.db
	v.mu.RUnlock()
	return expvar.Func(func() any { return db.Stats() }).String()
}
