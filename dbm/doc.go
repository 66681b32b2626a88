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
// A transaction reads one fixed snapshot and its own writes. Any number of transactions run at once, and readers
// never wait for a writer. If a key that a transaction writes was written by another one since its snapshot, its
// commit fails with ErrConflict and nothing is applied: the first committer wins. A transaction that has read
// nothing, like DB.Put, never conflicts, as if it had begun when it commits, unless TxOptions.CheckWrites is set.
// Update runs its function again after a conflict. This is snapshot isolation: the only anomaly that it permits is
// write skew. TxOptions.Serializable excludes that too.
//
// A transaction must be used by one goroutine. A DB may be used by any number.
//
// # Lifetimes
//
// Slices returned by a transaction, its cursors and iterators are valid until the transaction ends. They may point
// into the file and must not be modified. Slices returned by DB.Get belong to the caller.
//
// # Beside a writer
//
// A database opened with Options.Beside is read-only, takes no lock, keeps no writer out and waits for none.
// Another process may have it open for writing, be killed, and start again. Each transaction sees all that the file
// holds when the transaction begins: every commit that had returned, unless the writer's mode is Buffered, which
// keeps commits in memory for a while. If the reader's Options.Durability is Durable, the default, the reader syncs
// the file before it shows commits that the writer has not yet reported as durable; in the other modes it shows
// what the writer has given to the operating system. Beside a writer in WriteThrough mode there is one exception:
// its newest commits, at most 4 KiB of them, can be lost in a power cut although a reader in Durable mode has shown
// them, because the writer may be adding to the page that holds them.
//
// The writer does not know of such readers and reuses space that they may still need. A transaction that reads for
// long beside a writer that overwrites much gets ErrSnapshotTooOld, and its caller has to run it again; if it has
// returned nothing yet, it moves to a newer snapshot by itself. Pages are copied before they are checked and used,
// so lookups allocate, and a truncated file is an error and not a memory fault. MemoryLimit bounds the copies that
// are kept. In addition, what the writer has logged since its last flush, at most about its RedoLimit, is in the
// reader's memory. A reader opened after a sync of the writer has failed cannot know of the failure: it shows what
// is in the system's cache, until the file is opened for writing again. Each time that happens, the reader loads
// the file again, and transactions under way may get ErrSnapshotTooOld.
//
// # Memory
//
// Pages that have not changed since they were written are read through a mapping of the file; the operating system
// keeps or drops them. The first lookup in a page asks the system for that page alone, DB.Prefetch for those of many
// keys. MemoryLimit bounds what the file does not have yet: newer versions of pages, with an
// estimate of the lists and tables that belong to them. A commit that finds more waits for a flush; if open
// snapshots hold it, the oldest of them gets ErrSnapshotTooOld. In addition to MemoryLimit: write sets may take a
// quarter of it; commits that wait to be merged into the tree at most half of what exceeds 40 MiB of it (108 MiB by
// default), all of that while a new file is loaded, or an eighth of a small MemoryLimit; values that no sync has
// covered an eighth; the keys of commits after a backup a 16th; and about 8 MiB are fixed. One structure is not bounded: the table that leads to pages that
// have moved takes some 200 bytes for each such page until its parent is rewritten, or twice that, since Go's
// collector frees memory late. The pages that one merge makes are counted when it has ended, so a load into a new
// file by transactions can take twice MemoryLimit. At the peak of one, 516 MiB with a limit of 256, the pages took 323,
// Go's heap 115, mostly for commits that were being merged, and what Go's collector had freed and kept 63. DB.Load
// makes no such pages: for 1 M records of 16 + 100 bytes it took 14 MiB sorted, and 98 unsorted, where transactions
// took 320 to 400.
//
// # Events
//
// Options.Events is called with what happens to a database: that it was opened, a flush, a slow sync, damage.
// EventKind lists the kinds. Calls come one at a time, in the order of the events, under no lock, and the database
// does not wait for them; the function may use the database. While a call is running, up to 256 events wait;
// further ones are dropped. So are events that come too fast: of most kinds those beyond ten a second, and of kinds
// that tell of a lasting condition those beyond ten in ten seconds, one in ten seconds or one a minute.
// Event.Skipped counts the dropped events. If the function panics, that event is lost, the default logger of
// package slog is told, and the next event is delivered. Close waits at most one second until the last event has
// been taken. Without Events the default logger of package slog gets the events: a healthy database logs at level
// Debug only.
//
// # Durability
//
// By default a commit returns once it survives a power cut. See Durability for the other modes. In each mode
// recovery finds whole transactions, in the order in which they were committed.
package dbm
