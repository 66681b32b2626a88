package dbm

import (
	"log/slog"
	"os"
	"time"

	"flashdbm/logstore"
	"flashdbm/mvcc"
)

// Durability says when a commit returns. In each mode recovery finds the database as it was after some commit, never between two.
type Durability uint8

const (
	// Durable: the commit was synced to the device and survives a power cut. View sees durable commits only.
	Durable Durability = iota
	// WriteThrough: the commit was given to the operating system and survives the end of the process, not a power cut.
	WriteThrough
	// Buffered: the commit is in memory; it is written and synced within FlushInterval, or by DB.Sync.
	Buffered
)

// Options configure Open. The zero value of each field is its default; Open copies them.
type Options struct {
	ReadOnly      bool          // shared with other readers; a missing file is fs.ErrNotExist
	Beside        bool          // ReadOnly beside a process that may be writing; see "Beside a writer" above
	FileMode      os.FileMode   // of a new file, before umask; 0 = 0600
	Durability    Durability    // when commits return; default Durable
	FlushInterval time.Duration // Buffered: longest time that a commit is in memory only; 0 = 1s
	MaxFileSize   int64         // bytes; commits that need more fail with ErrFull; 0 = no limit
	MemoryLimit   int64         // bytes for changed pages, and a quarter as much for write sets; see "Memory" above; 0 = 256 MiB
	RedoLimit     int64         // bytes of log to redo at open before a flush is due; 0 = 32 MiB
	LockTimeout   time.Duration // how long Open waits for the file's lock; 0 = ErrLocked at once
	// MaxSnapshotAge bounds how long a transaction may be open, and so what it holds back: older ones get ErrSnapshotTooOld from their
	// next call on. With it reads return copies, which stay as they are. 0 = no bound.
	MaxSnapshotAge time.Duration
	TraceSnapshots bool         // remember where transactions begin, for Stats and the log; costs microseconds each
	Logger         *slog.Logger // told of slow or failing housekeeping; nil = silent
}

const (
	defaultMemoryLimit = 256 << 20
	minMemoryLimit     = 1 << 20
	defaultRedoLimit   = 32 << 20
	minRedoLimit       = 1 << 20
)

func (o *Options) engine() mvcc.Options {
	if o == nil {
		o = &Options{}
	}
	m := mvcc.Options{
		Store: logstore.Options{
			ReadOnly: o.ReadOnly, FileMode: o.FileMode, MaxFileSize: o.MaxFileSize, LockTimeout: o.LockTimeout,
		},
		Durability: mvcc.Durability(o.Durability), FlushInterval: o.FlushInterval,
		MemoryLimit: o.MemoryLimit, RedoLimit: o.RedoLimit, Logger: o.Logger,
		Leases: mvcc.LeaseOptions{MaxAge: max(o.MaxSnapshotAge, 0), Trace: o.TraceSnapshots},
	}
	if m.FlushInterval <= 0 {
		m.FlushInterval = time.Second
	}
	if m.MemoryLimit <= 0 {
		m.MemoryLimit = defaultMemoryLimit
	}
	if m.RedoLimit <= 0 {
		m.RedoLimit = defaultRedoLimit
	}
	m.MemoryLimit, m.RedoLimit = max(m.MemoryLimit, minMemoryLimit), max(m.RedoLimit, minRedoLimit)
	if m.Logger == nil {
		m.Logger = slog.New(slog.DiscardHandler)
	}
	return m
}
