package dbm

import (
	"fmt"
	"os"
	"time"

	"flashdbm/logstore"
	"flashdbm/mvcc"
)

// Durability says when a commit returns. In each mode recovery finds the database as it was after some commit,
// never between two.
type Durability uint8

const (
	// Durable: the commit has been synced to the device and survives a power cut. View sees durable commits only.
	Durable Durability = iota
	// WriteThrough: the commit has been written to the operating system. It survives the end of the process, but
	// not a power cut.
	WriteThrough
	// Buffered: the commit is in memory. It is written and synced within FlushInterval, or by DB.Sync.
	Buffered
)

// Options configure Open, which copies them. The zero value of each field is its default. A negative or impossible
// value is an error that names the option; then nothing is created.
type Options struct {
	ReadOnly      bool          // the file may be shared with other readers; a missing file is fs.ErrNotExist
	Beside        bool          // read-only beside a process that may be writing; see "Beside a writer" above
	FileMode      os.FileMode   // of a new file, before umask; 0 = 0600
	Durability    Durability    // when commits return; default Durable
	FlushInterval time.Duration // Buffered: longest time that a commit is only in memory; 0 = 1s
	MaxFileSize   int64         // bytes, MinMaxFileSize or more; commits that need more fail with ErrFull; 0 = no limit
	MemoryLimit   int64         // bytes for changed pages, and a quarter as much for write sets; see "Memory" above; 0 = 256 MiB
	RedoLimit     int64         // a flush starts when the next Open would have to redo this many bytes of log, or fewer if the database is small; 0 = 64 MiB
	LockTimeout   time.Duration // how long Open waits for the file's lock; 0 = ErrLocked at once
	// MaxSnapshotAge bounds how long a transaction may be open, and so how long it holds old versions. In a
	// transaction older than that, reads return ErrSnapshotTooOld, and so does the commit if the transaction has
	// read anything. With a bound, reads return copies, which stay valid. 0 = no bound.
	MaxSnapshotAge time.Duration
	TraceSnapshots bool        // remember where transactions begin, for Stats and Events; costs some microseconds a transaction
	Events         func(Event) // called with each event; see "Events" in the package comment; nil = LogEvents(nil), the default logger of package slog
}

const (
	defaultMemoryLimit = 256 << 20
	minMemoryLimit     = 1 << 20
	defaultRedoLimit   = 64 << 20
	minRedoLimit       = 1 << 20
)

// MinMaxFileSize, in bytes, is the least MaxFileSize. A smaller file would have no room for records, because
// background work and deletes need all of it.
const MinMaxFileSize = 1 << 20

// mostLimit, 1 PiB, bounds all limits in bytes, so that sums and multiples of them do not overflow.
const mostLimit = 1 << 50

// check returns an error for the first option that has no sensible value.
func (o *Options) check() error {
	if o == nil {
		return nil
	}
	if o.Durability > Buffered {
		return fmt.Errorf("flashdbm: Options.Durability is %d: it must be Durable, WriteThrough or Buffered", o.Durability)
	}
	if o.FileMode&^os.ModePerm != 0 {
		return fmt.Errorf("flashdbm: Options.FileMode is %v: it may have permission bits only", o.FileMode)
	}
	for _, l := range []struct {
		name  string
		bytes int64
		least int64
	}{{"MaxFileSize", o.MaxFileSize, MinMaxFileSize}, {"MemoryLimit", o.MemoryLimit, 1}, {"RedoLimit", o.RedoLimit, 1}} {
		switch {
		case l.bytes == 0:
		case l.bytes < 0:
			return fmt.Errorf("flashdbm: Options.%s is %d bytes: it cannot be negative; 0 is the default", l.name, l.bytes)
		case l.bytes < l.least:
			return fmt.Errorf("flashdbm: Options.%s is %d bytes: it must be at least %d", l.name, l.bytes, l.least)
		case l.bytes > mostLimit:
			return fmt.Errorf("flashdbm: Options.%s is %d bytes: it must be at most %d", l.name, l.bytes, int64(mostLimit))
		}
	}
	for _, l := range []struct {
		name string
		time time.Duration
	}{{"FlushInterval", o.FlushInterval}, {"LockTimeout", o.LockTimeout}, {"MaxSnapshotAge", o.MaxSnapshotAge}} {
		if l.time < 0 {
			return fmt.Errorf("flashdbm: Options.%s is %v: it cannot be negative", l.name, l.time)
		}
	}
	return nil
}

func (o *Options) engine() mvcc.Options {
	if o == nil {
		o = &Options{}
	}
	m := mvcc.Options{
		Store: logstore.Options{
			ReadOnly: o.ReadOnly, FileMode: o.FileMode, MaxFileSize: o.MaxFileSize, LockTimeout: o.LockTimeout,
		},
		Durability: mvcc.Durability(o.Durability), FlushInterval: o.FlushInterval,
		MemoryLimit: o.MemoryLimit, RedoLimit: o.RedoLimit,
		CallbackError: public,
		Leases:        mvcc.LeaseOptions{MaxAge: max(o.MaxSnapshotAge, 0), Trace: o.TraceSnapshots},
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
	return m
}
