package dbm

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"flashdbm/mvcc"
)

// ErrNoKeyspace: there is no keyspace of that name. The text says what to do.
var ErrNoKeyspace = errors.New("flashdbm: no such keyspace")

// maxSpaceName bounds the name of a keyspace, in bytes.
const maxSpaceName = 255

// Keyspace returns the transaction as a transaction of a keyspace: all its methods, cursors and iterators work on
// the records of that keyspace. It is the same transaction with one snapshot and one commit. So a transaction can
// read and write several keyspaces, and ending it through any of them ends it for all.
//
// A commit that has written fails with ErrConflict if a keyspace that the transaction asked for was dropped or
// renamed meanwhile. Asking for a keyspace is not a read: apart from that rule the transaction conflicts as it
// would in the default keyspace.
//
// ErrNoKeyspace. The name is only used for this lookup: a keyspace that is renamed stays usable through the
// returned Tx.
func (tx *txLink) Keyspace(name string) (*Tx, error) {
	if err := tx.hasSpaces(); err != nil {
		return nil, err
	}
	prefix, err := tx.spaceNamed(name)
	if err != nil {
		return nil, err
	}
	return tx.as(spaceOf(prefix)), nil
}

// CreateKeyspace creates an empty keyspace and returns the transaction as a transaction of it. name has 1 to 255
// bytes. ErrExists if there is a keyspace of that name; ErrNoKeyspace if the file has no keyspaces yet: see
// DB.EnableKeyspaces.
func (tx *txLink) CreateKeyspace(name string) (*Tx, error) {
	if err := tx.mayChangeSpace(name); err != nil {
		return nil, err
	}
	prefix, err := tx.nextSpace()
	if err != nil {
		return nil, err
	}
	if err := tx.whole().Put(catalogKey(catalogName, []byte(name)), prefix); err != nil {
		return nil, err
	}
	return tx.as(spaceOf(prefix)), nil
}

// nextSpace returns the prefix for a new keyspace.
func (tx *txLink) nextSpace() (prefix []byte, err error) {
	var last int64
	value, err := tx.look(spaceSerial)
	if err == nil {
		last, err = parseNumber(spaceSerial, value, int64(len(value)))
	} else if err == ErrNotFound {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if prefix, err = spacePrefix(last + 1); err != nil {
		return nil, err
	}
	return prefix, tx.whole().Put(spaceSerial, strconv.AppendInt(nil, last+1, 10))
}

// RenameKeyspace renames a keyspace. The time that it takes does not depend on the number of records.
// ErrNoKeyspace, ErrExists.
func (tx *txLink) RenameKeyspace(from, to string) error {
	if err := tx.mayChangeSpace(to); err != nil {
		return err
	}
	prefix, err := tx.spaceNamed(from)
	if err != nil {
		return err
	}
	all := tx.whole()
	if err := all.Delete(catalogKey(catalogName, []byte(from))); err != nil {
		return err
	}
	return all.Put(catalogKey(catalogName, []byte(to)), prefix)
}

// DropKeyspace removes a keyspace with all its records. The time that it takes does not depend on the number of
// records: after the commit they are invisible, and they are deleted in the background as by DeleteRange, about
// 260,000 in a commit. If the database is closed before they are deleted, the deletion continues after the first
// commit of the next open. Older snapshots still see the keyspace. DB.Dropping counts the dropped keyspaces with
// records left. DropKeyspace finds room on a full file, as a single delete does. ErrNoKeyspace.
func (tx *txLink) DropKeyspace(name string) error {
	if err := tx.hasSpaces(); err != nil {
		return err
	}
	if err := tx.whole().canWrite(nil, nil); err != nil {
		return err
	}
	prefix, err := tx.spaceNamed(name)
	if err != nil {
		return err
	}
	all := tx.whole()
	if err := all.Delete(catalogKey(catalogName, []byte(name))); err != nil {
		return err
	}
	if err := all.Put(catalogKey(catalogDropped, prefix), []byte(name)); err != nil {
		return err
	}
	mvcc.Freeing(all.inner)
	tx.dropped = append(tx.dropped, prefix)
	return nil
}

// Keyspaces iterates over the names of the keyspaces, in order. The default keyspace has no name. An error ends the
// iteration; Tx.Err returns it.
func (tx *txLink) Keyspaces() iter.Seq[string] {
	return func(yield func(name string) bool) {
		if !tx.spaced && !tx.done {
			return
		}
		from := catalogKey(catalogName, nil)
		for key := range tx.whole().Keys(from, PrefixEnd(from)) {
			if !yield(string(key[len(from):])) {
				return
			}
		}
	}
}

// hasSpaces returns an error unless the file has keyspaces at the transaction's snapshot.
func (tx *txLink) hasSpaces() error {
	switch {
	case tx.done:
		return ErrTxDone
	case !tx.spaced:
		return fmt.Errorf("%w: the database has none yet; DB.EnableKeyspaces, DB.CreateKeyspace or \"flashdbm keyspaces --create\" adds them", ErrNoKeyspace)
	}
	return nil
}

// mayNameSpace returns an error unless the transaction may write to the catalog, and a keyspace may have this name.
func (tx *txLink) mayNameSpace(name string) error {
	if err := tx.hasSpaces(); err != nil {
		return err
	}
	if err := tx.whole().canWrite(nil, nil); err != nil {
		return err
	}
	if len(name) == 0 || len(name) > maxSpaceName {
		return fmt.Errorf("flashdbm: the name of a keyspace has 1 to %d bytes, not %d", maxSpaceName, len(name))
	}
	return nil
}

// mayChangeSpace returns an error unless the transaction may give a keyspace this name, which no other one has.
func (tx *txLink) mayChangeSpace(name string) error {
	if err := tx.mayNameSpace(name); err != nil {
		return err
	}
	switch _, err := tx.spaceNamed(name); {
	case err == nil:
		return fmt.Errorf("%w: the keyspace %q", ErrExists, name)
	case !errors.Is(err, ErrNoKeyspace):
		return err
	}
	return nil
}

// look returns a record of the catalog. A transaction that writes conflicts if another one has changed that
// record when it commits. look has no other effect on conflicts: writes to keyspaces conflict as they would in
// the default one.
func (tx *txLink) look(key []byte) ([]byte, error) {
	if tx.readOnly {
		return tx.whole().Get(key)
	}
	return getGuarded(tx.whole(), key)
}

// spaceNamed returns the prefix of the keyspace with the given name.
func (tx *txLink) spaceNamed(name string) (prefix []byte, err error) {
	prefix, err = tx.look(catalogKey(catalogName, []byte(name)))
	switch {
	case err == ErrNotFound:
		return nil, fmt.Errorf("%w: %q", ErrNoKeyspace, name)
	case err != nil:
		return nil, err
	case !isSpacePrefix(prefix):
		return nil, tx.whole().note(fmt.Errorf("%w: the catalog has %x for the keyspace %q", ErrCorrupt, prefix, name))
	}
	return bytes.Clone(prefix), nil
}

// as returns the transaction as a transaction of s.
func (tx *txLink) as(s space) *Tx { return &Tx{txLink: tx, space: &s} }

// whole returns the transaction as a transaction of the whole tree.
func (tx *txLink) whole() *Tx { return tx.as(space{all: true}) }

// Keyspace is a keyspace of a database, known by its name; each of its methods is a transaction of its own. Any
// number of goroutines may use it. Each transaction looks the name up, and gets ErrNoKeyspace if no keyspace
// has it.
type Keyspace struct {
	db   *DB
	name string
}

// Keyspace returns the keyspace with the given name, which need not exist yet.
func (k *keyspaces) Keyspace(name string) *Keyspace { return &Keyspace{k.db, name} }

// View is DB.View; fn gets the transaction as one of the keyspace.
func (k *Keyspace) View(fn func(*Tx) error) error { return k.db.View(k.within(fn)) }

// Update is DB.Update; fn gets the transaction as one of the keyspace.
func (k *Keyspace) Update(fn func(*Tx) error) error { return k.db.Update(k.within(fn)) }

func (k *Keyspace) within(fn func(*Tx) error) func(*Tx) error {
	return func(tx *Tx) error {
		in, err := tx.Keyspace(k.name)
		if err != nil {
			return err
		}
		return fn(in)
	}
}

// Get returns a copy of the value of key, or ErrNotFound.
func (k *Keyspace) Get(key []byte) (value []byte, err error) {
	err = k.View(func(tx *Tx) error {
		v, err := tx.Get(key)
		value = bytes.Clone(v) // bytes.Clone keeps an empty value non-nil
		return err
	})
	return value, err
}

// Put sets the value of key in a transaction of its own. It is run again if the keyspace is dropped or renamed
// meanwhile: see DB.Update.
func (k *Keyspace) Put(key, value []byte) error {
	return k.Update(func(tx *Tx) error { return tx.Put(key, value) })
}

// Delete removes key in a transaction of its own, run again after a conflict; an absent key is no error.
func (k *Keyspace) Delete(key []byte) error {
	return k.Update(func(tx *Tx) error { return tx.Delete(key) })
}

// PutTTL is Put of a record that expires: see Tx.PutTTL.
func (k *Keyspace) PutTTL(key, value []byte, ttl time.Duration) error {
	return k.Update(func(tx *Tx) error { return tx.PutTTL(key, value, ttl) })
}

// TTL is Tx.TTL in a transaction of its own.
func (k *Keyspace) TTL(key []byte) (left time.Duration, expires bool, err error) {
	err = k.View(func(tx *Tx) error {
		left, expires, err = tx.TTL(key)
		return err
	})
	return left, expires, err
}

// Len returns the number of records of the keyspace: see Tx.Len.
func (k *Keyspace) Len() (n int64, err error) {
	err = k.View(func(tx *Tx) (err error) {
		n, err = tx.Len()
		return err
	})
	return n, err
}

// CreateKeyspace creates an empty keyspace. The first call turns the file into one with keyspaces: see
// EnableKeyspaces. ErrExists: see Tx.CreateKeyspace.
func (k *keyspaces) CreateKeyspace(name string) error {
	if err := k.EnableKeyspaces(); err != nil {
		return err
	}
	return k.db.Update(func(tx *Tx) error {
		_, err := tx.CreateKeyspace(name)
		return err
	})
}

// RenameKeyspace renames a keyspace: see Tx.RenameKeyspace.
func (k *keyspaces) RenameKeyspace(from, to string) error {
	return k.db.Update(func(tx *Tx) error { return tx.RenameKeyspace(from, to) })
}

// DropKeyspace removes a keyspace with all its records: see Tx.DropKeyspace.
func (k *keyspaces) DropKeyspace(name string) error {
	return k.db.Update(func(tx *Tx) error { return tx.DropKeyspace(name) })
}

// Keyspaces returns the names of the keyspaces, in order.
func (k *keyspaces) Keyspaces() (names []string, err error) {
	err = k.db.View(func(tx *Tx) error {
		names = nil
		for name := range tx.Keyspaces() {
			names = append(names, name)
		}
		return tx.Err()
	})
	return names, err
}
