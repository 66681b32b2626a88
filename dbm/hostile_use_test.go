package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"flashdbm/internal/btree"
	"flashdbm/internal/inspect"
	"flashdbm/internal/pagefile"
	"flashdbm/internal/salvage"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

const (
	hostileMemory = 32                     // bytes allocated in total, not at one time, for each byte of a hostile file, in addition to MemoryLimit and a fixed amount
	hostileFixed  = 8 << 20                // bytes of memory and of disk space
	hostileTime   = 250 * time.Millisecond // processor time
	hostileWait   = 20 * time.Second       // elapsed time
	leafRecords   = 404
)

// drawModes returns the ways in which a hostile file is opened in succession: for reading, as usual or as beside a
// writer, then for writing, perhaps with a reader beside, and then perhaps once more.
func drawModes(rng *rand.Rand) []string {
	modes := []string{one(rng, []string{"read-only", "beside"}), one(rng, []string{"writing", "followed"})}
	if rng.IntN(2) == 0 {
		modes = append(modes, "again")
	}
	return modes
}

// hostileVersions is the pool of memory for databases on file systems in memory.
var hostileVersions btree.MemoryPool

// A use does everything that a program may do with a database whose file may be hostile. Each operation ends with
// data or an error, needs time and memory only in proportion to the file's real contents, whatever the file claims,
// and returns records in order. The results are consistent with each other unless Check reports damage.
type use struct {
	*specimen
	mem     *vfs.Mem
	fs      vfs.FS // mem, or the operating system's
	path    string
	rng     *rand.Rand
	wrote   bool              // a handle for writing may have failed, after which reads may fail too
	keys    [][]byte          // keys that the last scan found
	values  [][]byte          // values of keys
	written map[string][]byte // what writes that returned have stored since the database was opened; nil for a delete
}

// slow is the error of a use that took too long, which may be due to the machine.
type slow time.Duration

func (s slow) Error() string { return fmt.Sprintf("it took %v of a processor", time.Duration(s)) }

// use opens the database in one of the modes.
func (s *specimen) use(mem *vfs.Mem, rng *rand.Rand, mode string) error {
	u := &use{specimen: s, mem: mem, fs: mem, path: crashPath, rng: rng}
	return u.within(mode)
}

// within runs a use and checks that memory, time and disk space stay within limits.
func (u *use) within(mode string) error {
	crashProgress.Add(1)
	size := int64(len(u.file))
	begin, busy, before := time.Now(), usedTime(), allocated()
	err := u.guarded(mode)
	took, busy, n, disk := time.Since(begin), usedTime()-busy, allocated()-before, u.mem.Used()
	switch {
	case err != nil:
		return err
	case n > u.load.memoryLimit+hostileFixed+hostileMemory*size:
		return fmt.Errorf("%d bytes allocated", n)
	case disk > 2*size+hostileFixed:
		return fmt.Errorf("the file takes %d bytes on disk", disk)
	case busy > hostileTime || took > hostileWait:
		return slow(busy)
	}
	return nil
}

func (u *use) guarded(mode string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return u.run(mode)
}

// allocated returns how many bytes this process has allocated on the heap so far. Unlike runtime.ReadMemStats, it
// does not stop the world.
func allocated() int64 {
	sample := [1]metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample[:])
	return int64(sample[0].Value.Uint64())
}

// most is how many records a file of this size can have, plus some that were written since.
func (u *use) most() int { return len(u.file)/logstore.PageSize*leafRecords + 1000 }

// told reports whether an error is one that a hostile file may cause.
func (u *use) told(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat) || errors.Is(err, ErrSnapshotTooOld) || u.wrote && errors.Is(err, ErrFailed)
}

func (u *use) open(readOnly, beside bool) (*DB, error) {
	o := u.load.options(rand.New(rand.NewPCG(u.rng.Uint64(), 1)))
	o.Store.ReadOnly, o.Store.Beside = readOnly || beside, beside
	if o.Manual = u.fs == vfs.FS(u.mem); o.Manual { // a real file has background work in the background
		o.Shares.Versions = &hostileVersions
	}
	if o.Shares.WriteSets > 0 { // otherwise a few records of a transaction would leave memory each time, which takes half a megabyte
		o.Shares.WriteSets = max(o.Shares.WriteSets, 24<<10)
	}
	if beside && u.rng.IntN(2) == 0 {
		return openBeside(u.fs, u.path, o)
	}
	return openEngine(u.fs, u.path, o)
}

func (u *use) run(mode string) error {
	if mode == "salvaged" {
		return u.salvage()
	}
	readOnly := mode == "read-only" || mode == "beside"
	u.wrote, u.written = false, map[string][]byte{}
	db, err := u.open(readOnly, mode == "beside")
	if err != nil {
		return damageOnly(err)
	}
	defer db.Close()
	if err := u.read(db); err != nil || readOnly {
		return err
	}
	u.wrote = true
	if err := u.writeBeside(db, mode == "followed"); err != nil {
		return err
	}
	if err := u.read(db); err != nil {
		return fmt.Errorf("after writing: %w", err)
	}
	if err := db.Close(); err != nil && !u.told(err) && !errors.Is(err, ErrFull) {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// salvage salvages the file. It must end, and must not produce more records than the file can contain.
func (u *use) salvage() error {
	f, err := pagefile.Open(context.Background(), u.fs, u.path, 0)
	if err != nil {
		return damageOnly(err)
	}
	defer f.Close()
	records, bytes := 0, int64(0)
	_, err = salvage.Run(context.Background(), f, salvage.Options{Older: len(u.file)/logstore.PageSize%2 == 0, Missing: func(m salvage.Missing) {}, Emit: func(r salvage.Record) error {
		if records++; records > 2*u.most() {
			return errors.New("more records than the file has room for")
		}
		if bytes += int64(len(r.Key)) + r.Size; bytes > 4*int64(len(u.file)) {
			return fmt.Errorf("%d bytes came out of a file of %d", bytes, len(u.file))
		}
		if r.Large != nil {
			_, err := io.Copy(io.Discard, r.Large)
			return err
		}
		return nil
	}})
	if err != nil || len(u.file)/logstore.PageSize%4 != 1 {
		return err
	}
	return u.inspect(f)
}

// inspect shows all parts of the file.
func (u *use) inspect(f *pagefile.File) error {
	shown := 0
	x := inspect.New(f, func(p inspect.Part) error {
		shown += len(p.Parts)
		return nil
	})
	ctx := context.Background()
	for _, show := range []func() error{
		func() error { return x.File(ctx) },
		func() error { return x.Log(ctx, 0, 0) },
		func() error { return x.Table(ctx) },
		func() error { return x.Space(ctx) },
		func() error { return x.Key(ctx, []byte("00001")) },
		func() error { return x.Node(ctx, 1<<63) },
		func() error { return x.Segment(ctx, 0) },
	} {
		_ = show() // parts that cannot be shown cause an error
	}
	for a := range uint64(len(u.file) / logstore.PageSize) {
		if err := x.Page(ctx, a); err != nil {
			return err
		}
	}
	if most := 12 * u.most(); shown > most {
		return fmt.Errorf("%d parts shown, %d at the most in such a file", shown, most)
	}
	return nil
}

// writeBeside writes, perhaps while a reader beside reads.
func (u *use) writeBeside(db *DB, followed bool) error {
	if !followed {
		return u.write(db, func() error { return nil })
	}
	reader, err := u.open(true, true)
	if err != nil {
		if !u.told(err) {
			return fmt.Errorf("a reader beside: %w", err)
		}
		return u.write(db, func() error { return nil })
	}
	defer reader.Close()
	return u.write(db, func() error {
		if _, err := u.scans(reader); err != nil {
			return fmt.Errorf("beside: %w", err)
		}
		return nil
	})
}

// read scans in both directions, looks up what was found, and checks. A contradiction is an error if Check finds
// nothing.
func (u *use) read(db *DB) error {
	wrong, err := u.scans(db)
	if err == nil && wrong == nil {
		wrong, err = u.lookups(db)
	}
	if err == nil {
		err = u.ranges(db)
	}
	if err != nil {
		return err
	}
	damage := db.Check(context.Background())
	if damage != nil && !u.told(damage) {
		return fmt.Errorf("check: %w", damage)
	}
	if wrong != nil && damage == nil {
		return fmt.Errorf("Check finds nothing, but: %w", wrong)
	}
	return nil
}

// view runs fn in a transaction. Errors of fn are always errors; those of the database are if a hostile file may
// not cause them.
func (u *use) view(db *DB, fn func(*Tx) error) (told, err error) {
	told = db.View(func(tx *Tx) error {
		err = fn(tx)
		return nil
	})
	if err == nil && told != nil && !u.told(told) {
		err = told
	}
	return told, err
}

// scans reads all records in both directions. Keys out of order are an error, whatever Check finds.
func (u *use) scans(db *DB) (wrong, err error) {
	u.keys, u.values = u.keys[:0], u.values[:0]
	wrong, err = u.view(db, func(tx *Tx) error {
		for k, v := range tx.All() {
			if n := len(u.keys); n > 0 && bytes.Compare(u.keys[n-1], k) >= 0 {
				return fmt.Errorf("record %d: key %.20q follows %.20q", n, k, u.keys[n-1])
			} else if n > u.most() {
				return errors.New("a scan without end")
			}
			u.keys, u.values = append(u.keys, bytes.Clone(k)), append(u.values, bytes.Clone(v))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	back, err := u.view(db, func(tx *Tx) error {
		n := len(u.keys)
		var last []byte
		for k, v := range tx.Backward(nil, nil) {
			if n--; n < len(u.keys)-1 && bytes.Compare(last, k) <= 0 {
				return fmt.Errorf("backward, key %.20q follows %.20q", k, last)
			} else if -n > u.most() {
				return errors.New("a backward scan without end")
			}
			last = append(last[:0], k...)
			if wrong == nil && (n < 0 || !bytes.Equal(u.keys[n], k) || !bytes.Equal(u.values[n], v)) {
				wrong = fmt.Errorf("record %d is %.20q backward", n, k)
			}
		}
		if wrong == nil && tx.Err() == nil && n != 0 {
			wrong = fmt.Errorf("%d records are missing backward", n)
		}
		if n, err := tx.Len(); wrong == nil && (err != nil || n != int64(len(u.keys))) {
			wrong = fmt.Errorf("Len is %d (%v), %d records found", n, err, len(u.keys))
		}
		return nil
	})
	if wrong == nil {
		wrong = back
	}
	return wrong, err
}

// lookups reads some records that a scan has found, records that were written, and some keys that may not exist.
func (u *use) lookups(db *DB) (wrong, err error) {
	look := func(key, want []byte, there bool) error {
		v, err := db.Get(key)
		switch {
		case err != nil && !errors.Is(err, ErrNotFound) && !u.told(err):
			return err
		case there == (err == nil) && bytes.Equal(v, want):
		case wrong == nil:
			wrong = fmt.Errorf("Get of %.20q: %d bytes (%v), not %d", key, len(v), err, len(want))
		}
		return nil
	}
	for range min(6, len(u.keys)) {
		i := u.rng.IntN(len(u.keys))
		err = errors.Join(err, look(u.keys[i], u.values[i], true))
	}
	for k, v := range u.written {
		err = errors.Join(err, look([]byte(k), v, v != nil))
	}
	for range 3 {
		if _, e := db.Get([]byte(u.load.key(u.rng.IntN(u.load.keys)))); e != nil && !errors.Is(e, ErrNotFound) && !u.told(e) {
			err = errors.Join(err, e)
		}
	}
	return wrong, err
}

// ranges scans from a key and over a prefix.
func (u *use) ranges(db *DB) error {
	k := []byte(u.load.key(u.rng.IntN(u.load.keys)))
	_, err := u.view(db, func(tx *Tx) error {
		c := tx.Cursor()
		if c.Seek(k) && bytes.Compare(c.Key(), k) < 0 && c.Err() == nil {
			return fmt.Errorf("Seek of %.20q finds %.20q", k, c.Key())
		}
		for p := range tx.Backward(nil, k) {
			if bytes.Compare(p, k) >= 0 {
				return fmt.Errorf("before %.20q is %.20q", k, p)
			}
			break
		}
		n := 0
		for p := range tx.Prefix(k[:1]) {
			if n++; n > u.most() || !bytes.HasPrefix(p, k[:1]) {
				return fmt.Errorf("record %d of prefix %q is %.20q", n, k[:1], p)
			}
		}
		return nil
	})
	return err
}

// write makes some changes and calls look from time to time. Writes may fail, but nothing else may happen.
func (u *use) write(db *DB, look func() error) error {
	for range 10 {
		if err := u.change(db); err != nil {
			if errors.Is(err, errLook) {
				return err
			}
			break
		}
		if u.rng.IntN(4) == 0 {
			if err := look(); err != nil {
				return err
			}
		}
	}
	db.engine.Housekeep() // including work that the scans have caused
	db.Checkpoint()
	db.Compact(context.Background(), nil)
	return look()
}

// errLook says that a delete of a prefix found another key.
var errLook = errors.New("a cursor left the range it was in")

// change makes one change.
func (u *use) change(db *DB) error {
	k := []byte(u.load.key(u.rng.IntN(u.load.keys)))
	if n := len(u.keys); n > 0 && u.rng.IntN(3) == 0 {
		k = u.keys[u.rng.IntN(n)]
	}
	size := u.rng.IntN(900)
	switch u.rng.IntN(12) {
	case 0:
		return u.clear(db, k[:min(1, len(k))])
	case 1, 2:
		err := db.Delete(k)
		if err == nil {
			u.written[string(k)] = nil
		}
		return err
	case 3:
		ops := u.load.draw(u.rng, u.mem)
		err := commitOps(db, ops)
		if err == nil {
			for _, o := range ops {
				u.written[string(o.key)] = o.value
			}
		}
		return err
	case 4:
		return db.Checkpoint()
	case 5:
		return db.Sync()
	case 6:
		size = u.rng.IntN(20 << 10)
	}
	v := randomBytes(u.rng, size)
	var err error
	switch size % 4 {
	case 0:
		done := make(chan error, 1)
		if err = db.PutAsync(k, v, func(err error) { done <- err }); err == nil {
			err = <-done
		}
	case 1:
		err = db.Update(func(tx *Tx) error { return tx.PutReader(k, bytes.NewReader(v), UnknownSize) })
	default:
		err = db.Put(k, v)
	}
	if err == nil {
		u.written[string(k)] = v
	}
	return err
}

// clear deletes all records with a prefix, as the command del does.
func (u *use) clear(db *DB, prefix []byte) error {
	clear(u.written)
	return db.Update(func(tx *Tx) error {
		c, n := tx.Cursor(), 0
		for ok := c.Seek(prefix); ok && bytes.HasPrefix(c.Key(), prefix); ok = c.Next() {
			if n++; n > u.most() {
				return fmt.Errorf("%w: %d records", errLook, n)
			}
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return c.Err()
	})
}
