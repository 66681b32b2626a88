// Package dbm is an embedded, ordered key-value store in one file, with transactions.
//
//	db, err := dbm.Open("accounts.fdbm", nil)
//	err = db.Update(func(tx *dbm.Tx) error { return tx.Put([]byte("alice"), []byte("100")) })
//	err = db.View(func(tx *dbm.Tx) error { v, err := tx.Get([]byte("alice")); ... })
//	err = db.Close()
//
// Keys are any bytes, up to 64 KiB, ordered bytewise; nil is the empty key. Values are any bytes, up to 4 GiB.
//
// # Transactions
//
// A transaction reads one unmoving snapshot and its own writes. Any number run at once, and readers wait for no writer. If
// a key that a transaction writes was written by another one since its snapshot, its commit fails with ErrConflict and nothing is applied:
// the first committer wins. A transaction that read nothing, like DB.Put, never conflicts, as if it had begun when it commits, unless
// TxOptions.CheckWrites is set. Update runs its function again
// after a conflict. That is snapshot isolation: of the anomalies only write skew is possible. TxOptions.Serializable excludes that too.
//
// A transaction belongs to one goroutine. A DB may be used by any number.
//
// # Lifetimes
//
// Slices that a transaction, its cursors and iterators return are valid until the transaction ends; they may point into the file and
// must not be modified. Those of DB.Get are the caller's own.
//
// # Beside a writer
//
// A database opened with Options.Beside is read-only, takes no lock, keeps no writer out and waits for none. Another process may have it
// open for writing, be killed and start again. Each transaction sees all that the file holds when it begins: every commit that had
// returned, unless the writer's mode is Buffered, which keeps commits in memory for a while. In Durable mode, the default, the reader
// syncs the file before it shows what the writer has not yet said is durable; in the other modes it shows what the writer has given to
// the system. Options.Durability of the reader says which. Beside a writer in WriteThrough mode
// there is one exception: its newest commits, 4 KiB of them at most, can be lost in a power cut although a reader in Durable mode has shown
// them, for the writer may be adding to the page that they are in.
//
// The writer does not know of such readers and uses space again that they may still want: a transaction that reads for long beside a
// writer that overwrites much gets ErrSnapshotTooOld, and is run again by its caller. If it has returned nothing yet, it moves to a newer
// snapshot by itself. Pages are copied before they are checked and used, so lookups allocate, and a file that is cut short is an error
// and not a fault. MemoryLimit bounds the copies that are kept; what the writer has logged since its last flush, at most about its
// RedoLimit, is in memory beside them. A reader that was opened after a sync of the writer had failed cannot know of that: it shows what
// is in the system's cache, until the file is opened for writing again. Each time it is, the reader loads it anew, and a transaction that
// is under way may get ErrSnapshotTooOld.
//
// # Memory
//
// What was written and not changed since is read where the file is mapped, and is the system's to keep or to drop. MemoryLimit is for what
// is not in the file as it should be: the newer versions of pages, with an estimate of what lists and tables have for them. A commit that
// finds more waits for a flush; if readers hold it, the oldest is told ErrSnapshotTooOld. Beside that, write sets have a quarter of it,
// commits that wait to be merged into the tree
// at most half of what is above 40 MiB (108 MiB by default), all of it while a new file is loaded, or an eighth of a small one, values that no sync has covered an eighth, and
// about 8 MiB are fixed. Not bounded is the table that
// leads to pages that have moved: some 200 bytes each, until their parents are rewritten, or twice that, as Go's collector lets garbage lie.
//
// # Events
//
// Options.Events is called with what happens to a database: that it was opened, a flush, a slow sync, damage. EventKind lists the kinds. It is called by
// one goroutine at a time, in the order of events, under no lock, and the database does not wait for it. It may use the database. While it is busy up
// to 256 events wait; what comes beyond that is left out, and so is what comes faster than about ten of a kind a second or, for what is likely to
// go on, one in ten seconds: Event.Skipped counts these. If it panics, that event is lost, the default logger of package slog is told, and the
// next event is delivered. Close waits a second at most until it has taken the last one. Without Events the default logger of package slog
// gets them: a healthy database logs at level Debug only.
//
// # Durability
//
// By default a commit returns once it survives a power cut. See Durability for the other modes; in each of them recovery finds whole
// transactions, in the order in which they were committed.
package dbm
