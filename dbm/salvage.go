package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"flashdbm/internal/pagefile"
	"flashdbm/internal/salvage"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// Scopes that only Salvage reports, in addition to those of CheckAll.
const (
	LostCommits  = mvcc.DamagedSpace + 1 + iota // keys unknown: pages of the log are damaged, and the commits in them are missing
	OlderVersion                                // the record with the key From was recovered, and may not be its newest version
)

// SalvageOptions say how to salvage. The zero value of each field is its default.
type SalvageOptions struct {
	Older       bool                    // if the newest page of a record is damaged, recover an older version; each is reported
	LockTimeout time.Duration           // how long to wait for a process that has the damaged file open for writing; 0 = ErrLocked at once
	Report      func(Damage)            // called for each missing part, and each record that is an older version; may be nil
	Progress    func(read, total int64) // called with the number of bytes of the damaged file that have been read; may be nil
}

// A Salvaged is the result of Salvage.
type Salvaged struct {
	Records     int64  // records in the new database
	Bytes       int64  // bytes of their keys and values
	Older       int64  // those of Records that may not be the newest version; 0 without SalvageOptions.Older
	DamagedTree int64  // unreadable pages of the tree
	LostRecords int64  // unreadable records whose key, or its first 1,000 bytes, is known
	LostGroups  uint64 // missing or damaged groups of the log. Their commits are lost unless a page of the tree has what they wrote
	Dropped     bool   // the newest commit, or part of a flush, is incomplete, as a crash leaves it
	Superblocks int    // readable superblocks, of two
	Checkpoint  bool   // a checkpoint could be read. Without one, which pages are the newest can only be inferred
}

// Salvage copies every record of a damaged database that can still be read to a new database. It needs neither a
// superblock nor a complete log or tree: it reads all pages of the file, and so finds pages that no other page
// refers to. docs/recovery.md says what counts as recovered, and when an older version of a record can come
// back.
//
// The damaged file is only read. Other processes may have it open for reading, but not for writing. The new file
// must not exist. It appears under its name when it is complete; if Salvage fails before that, it removes what it
// wrote. The new file takes about as much room as the records.
//
// Errors wrap ErrFormat if the file is no database, or one of a newer program; ErrLocked; fs.ErrExist; and errors
// of writing a database. Damage, even of the whole file, is not an error: see Salvaged.
func Salvage(ctx context.Context, damaged, fresh string, opts *SalvageOptions) (result Salvaged, err error) {
	if opts == nil {
		opts = &SalvageOptions{}
	}
	if _, err := os.Lstat(fresh); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("flashdbm: %s: %w", fresh, fs.ErrExist)
		}
		return result, err
	}
	f, err := pagefile.Open(ctx, vfs.OS(), damaged, opts.LockTimeout)
	if err != nil {
		return result, err
	}
	defer f.Close()
	w, err := newSalvageWriter(ctx, fresh)
	if err != nil {
		return result, err
	}
	for i := range f.Supers {
		if sb := &f.Supers[i]; sb.Err == nil && sb.Keyspaces() {
			w.spaced = true
		}
	}
	returned := false
	defer func() {
		if !returned { // a function of opts panicked, or called runtime.Goexit
			_ = w.abandon()
		}
	}()
	result, err = opts.run(ctx, f, w.put)
	returned = true
	if err != nil {
		return result, errors.Join(err, w.abandon())
	}
	return result, w.finish()
}

// Examine is Salvage without the new database: it reports what would be missing.
func Examine(ctx context.Context, damaged string, opts *SalvageOptions) (result Salvaged, err error) {
	if opts == nil {
		opts = &SalvageOptions{}
	}
	f, err := pagefile.Open(ctx, vfs.OS(), damaged, opts.LockTimeout)
	if err != nil {
		return result, err
	}
	defer f.Close()
	return opts.run(ctx, f, nil)
}

// run salvages a file; emit gets each record.
func (opts *SalvageOptions) run(ctx context.Context, f *pagefile.File, emit func(salvage.Record) error) (Salvaged, error) {
	o := salvage.Options{Older: opts.Older, Emit: emit}
	if opts.Report != nil {
		o.Missing = func(m salvage.Missing) { opts.Report(damageOf(m)) }
	}
	if opts.Progress != nil {
		read := int64(0)
		o.Progress = func(n int64) {
			read = min(read+n, f.Size)
			opts.Progress(read, f.Size)
		}
	}
	r, err := salvage.Run(ctx, f, o)
	return Salvaged{r.Records, r.Bytes, r.Older, r.Damaged, r.LostRecords, r.LostGroups, r.Dropped != 0, r.Superblocks, r.Checkpoint != 0}, err
}

// damageOf converts a salvage.Missing to a Damage.
func damageOf(m salvage.Missing) Damage {
	d := Damage{Page: m.Page, From: m.From, To: m.To, Err: m.Err}
	switch m.Scope {
	case salvage.LostRecord:
		d.Scope = DamagedRecord
	case salvage.Groups:
		d.Scope = LostCommits
		what := fmt.Sprintf("group %d of the log", m.FirstGroup)
		if m.LastGroup != m.FirstGroup {
			what = fmt.Sprintf("groups %d to %d of the log", m.FirstGroup, m.LastGroup)
		}
		if m.Err != nil {
			d.Err = fmt.Errorf("%s: %w", what, m.Err)
		} else {
			d.Err = fmt.Errorf("%w: %s: missing, or missing pages", ErrCorrupt, what)
		}
	case salvage.Superblock:
		d.Scope = DamagedSpace
		d.Err = fmt.Errorf("superblock in page %d, which says how far the log goes: %w", m.Page, m.Err)
	case salvage.Segment:
		d.Scope = LostCommits
		d.Err = fmt.Errorf("commits may be missing: %w", m.Err)
	case salvage.OlderRecord:
		d.Scope = OlderVersion
		d.Err = fmt.Errorf("%w: the newest leaf is damaged; this version is of group %d", ErrCorrupt, m.FirstGroup)
	}
	return d
}

// salvageWriter writes the new database under a temporary name, in transactions of up to salvageBatchRecords or
// salvageBatchBytes.
type salvageWriter struct {
	ctx     context.Context
	name    string // final name
	part    string // temporary name
	db      *DB
	tx      *Tx
	records int   // records in tx
	bytes   int64 // bytes of keys and values in tx
	spaced  bool  // a superblock says that the damaged file had keyspaces
	marked  bool  // the mark of keyspaces was recovered
}

const (
	salvageBatchRecords = 10_000
	salvageBatchBytes   = 8 << 20
)

func newSalvageWriter(ctx context.Context, name string) (*salvageWriter, error) {
	w := &salvageWriter{ctx: ctx, name: name, part: name + ".part"}
	file, err := os.OpenFile(w.part, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("flashdbm: %w: it may be left by a salvage that was killed; remove it first", err)
	}
	if err != nil {
		return nil, fmt.Errorf("flashdbm: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, errors.Join(err, os.Remove(w.part))
	}
	if w.db, err = Open(w.part, &Options{Durability: Buffered}); err != nil {
		return nil, errors.Join(err, os.Remove(w.part))
	}
	return w, nil
}

func (w *salvageWriter) put(r salvage.Record) (err error) {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if w.tx == nil {
		if w.tx, err = w.db.Begin(TxOptions{}); err != nil {
			return err
		}
		w.tx = w.tx.whole()
	}
	w.marked = w.marked || bytes.Equal(r.Key, spaceMark)
	if r.Large != nil {
		err = w.tx.PutReader(r.Key, r.Large, r.Size)
	} else {
		err = w.tx.Put(r.Key, r.Value)
	}
	w.records++
	w.bytes += int64(len(r.Key)) + r.Size
	if err == nil && (w.records >= salvageBatchRecords || w.bytes >= salvageBatchBytes) {
		err = w.commit()
	}
	return err
}

func (w *salvageWriter) commit() error {
	tx := w.tx
	w.tx, w.records, w.bytes = nil, 0, 0
	if tx == nil {
		return nil
	}
	return tx.Commit()
}

// mark gives the new database keyspaces if the damaged one had them, according to its superblocks or its mark:
// the salvaged keys are then in the form of a tree with keyspaces.
func (w *salvageWriter) mark() error {
	if !w.spaced && !w.marked {
		return nil
	}
	if err := mvcc.SetKeyspaces(w.db.engine); err != nil {
		return public(err)
	}
	if w.marked {
		return nil
	}
	return w.db.Update(func(tx *Tx) error {
		form := spaceForm
		if s, err := stampByIndex(tx); err != nil {
			return err
		} else if s != 0 {
			form = formOf(s)
		}
		return tx.whole().Put(spaceMark, form)
	})
}

// abandon removes the unfinished database.
func (w *salvageWriter) abandon() (err error) {
	if w.tx != nil {
		err = w.tx.Rollback()
	}
	w.db.Close() // the error does not matter, because the file is removed
	return errors.Join(err, os.Remove(w.part))
}

// finish completes the new database and gives it its final name, unless somebody has created a file of that name
// meanwhile.
func (w *salvageWriter) finish() error {
	if err := errors.Join(w.commit(), w.mark()); err != nil {
		return errors.Join(err, w.abandon())
	}
	if err := w.db.Close(); err != nil {
		return errors.Join(err, os.Remove(w.part))
	}
	err := os.Link(w.part, w.name)
	if err != nil && !errors.Is(err, fs.ErrExist) { // the file system has no hard links
		if _, lerr := os.Lstat(w.name); errors.Is(lerr, fs.ErrNotExist) {
			err = os.Rename(w.part, w.name)
		}
		if err == nil {
			return syncDirectory(vfs.OS(), w.name)
		}
	}
	if rerr := os.Remove(w.part); err != nil || rerr != nil {
		return errors.Join(err, rerr)
	}
	return syncDirectory(vfs.OS(), w.name)
}

// syncDirectory makes a new name durable, if the file system can do that.
func syncDirectory(system vfs.FS, name string) error {
	if err := system.SyncDir(name); err != nil && !vfs.IsUnsyncable(err) {
		return err
	}
	return nil
}
