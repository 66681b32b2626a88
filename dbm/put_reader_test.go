package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// countingReader returns n bytes that depend on their position, and counts them.
type countingReader struct{ given, n int64 }

func (r *countingReader) Read(p []byte) (int, error) {
	if r.given == r.n {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), r.n-r.given)]
	for i := range p {
		p[i] = byte((r.given + int64(i)) * 2654435761 >> 11)
	}
	r.given += int64(len(p))
	return len(p), nil
}

// TestPutReader: a value of any length, known or not, from readers of all kinds, is stored as it was read.
func TestPutReader(t *testing.T) {
	db := newDB(t, nil)
	sizes := append([]int{1<<20 + 1, 3<<20 + 17}, valueSizes...)
	manners := map[string]func(io.Reader) io.Reader{
		"plain": func(r io.Reader) io.Reader { return r },
		"half":  iotest.HalfReader,
		"eof":   iotest.DataErrReader,
	}
	for _, keyLen := range []int{3, maxKey} {
		for name, manner := range manners {
			for _, size := range sizes {
				whole, err := io.ReadAll(&countingReader{n: int64(size)})
				require.NoError(t, err)
				for _, known := range []int64{int64(size), UnknownSize} {
					key := sized(keyLen, byte(size))
					require.NoError(t, db.Update(func(tx *Tx) error {
						require.NoError(t, tx.PutReader(key, manner(&countingReader{n: int64(size)}), known))
						got, err := tx.Get(key)
						require.NoError(t, err)
						require.True(t, bytes.Equal(whole, got), "%s, %d bytes", name, size)
						return nil
					}))
					got, err := db.Get(key)
					require.NoError(t, err)
					require.NotNil(t, got)
					require.True(t, bytes.Equal(whole, got), "%s, %d bytes", name, size)
				}
			}
		}
	}
	require.NoError(t, db.Update(func(tx *Tx) error {
		return tx.PutReader(nil, iotest.OneByteReader(strings.NewReader("slow")), UnknownSize)
	}))
	got, err := db.Get(nil)
	require.NoError(t, err)
	require.Equal(t, "slow", string(got))
	require.NoError(t, db.Check(t.Context()))
}

// TestPutReaderLeavesTheRest: not more is read than the size says.
func TestPutReaderLeavesTheRest(t *testing.T) {
	db := newDB(t, nil)
	for _, size := range []int64{0, 10, 2 << 20} {
		r := &countingReader{n: size + 100}
		require.NoError(t, db.Update(func(tx *Tx) error { return tx.PutReader([]byte("k"), r, size) }))
		require.Equal(t, size, r.given)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestPutReaderFails: whatever goes wrong with the reader, the transaction continues without that put, the earlier
// value stays, and the segments of the new value are freed.
func TestPutReaderFails(t *testing.T) {
	broken := errors.New("broken")
	after := func(n int64, end func(p []byte) (int, error)) io.Reader {
		return io.MultiReader(&countingReader{n: n}, readerFunc(end))
	}
	other := newDB(t, nil)
	require.NoError(t, other.Close())
	for name, c := range map[string]struct {
		end  func(p []byte) (int, error)
		size int64 // how much more than the reader has
		want error
	}{
		"error":          {func([]byte) (int, error) { return 0, broken }, 5, broken},
		"short":          {func([]byte) (int, error) { return 0, io.EOF }, 1, io.ErrUnexpectedEOF},
		"its own short":  {func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }, UnknownSize, io.ErrUnexpectedEOF},
		"cancelled":      {func([]byte) (int, error) { return 0, context.Canceled }, UnknownSize, context.Canceled},
		"of the media":   {func([]byte) (int, error) { _, err := other.Get(nil); return 0, err }, UnknownSize, ErrClosed},
		"idle":           {func([]byte) (int, error) { return 0, nil }, UnknownSize, io.ErrNoProgress},
		"less than none": {func([]byte) (int, error) { return -1, nil }, UnknownSize, errReaderCount},
		"too much":       {func(p []byte) (int, error) { return len(p) + 1, nil }, UnknownSize, errReaderCount},
	} {
		db := newDB(t, &Options{MaxFileSize: 64 << 20, Durability: Buffered})
		for _, given := range []int64{0, 100, 1 << 20, 5 << 20} {
			t.Run(fmt.Sprint(name, " after ", given), func(t *testing.T) {
				require.NoError(t, db.Put([]byte("k"), []byte("old")))
				size := int64(UnknownSize)
				if c.size != UnknownSize {
					size = given + c.size
				}
				tx, err := db.Begin(TxOptions{})
				require.NoError(t, err)
				require.NoError(t, tx.Put([]byte("before"), []byte("1")))
				for range 20 { // these would take 100 MiB if nothing were freed
					require.ErrorIs(t, tx.PutReader([]byte("k"), after(given, c.end), size), c.want)
				}
				require.NoError(t, tx.Err())
				got, err := tx.Get([]byte("k"))
				require.NoError(t, err)
				require.Equal(t, "old", string(got))
				require.NoError(t, tx.Put([]byte("after"), []byte("2")))
				require.NoError(t, tx.Commit())
				n, err := db.Len()
				require.NoError(t, err)
				require.EqualValues(t, 3, n)
				require.NoError(t, db.Check(t.Context()))
			})
		}
	}
}

// TestPutReaderPanics: the segments of a value are also freed if its reader panics.
func TestPutReaderPanics(t *testing.T) {
	db := newDB(t, &Options{MaxFileSize: 64 << 20})
	for range 20 {
		require.Panics(t, func() {
			db.Update(func(tx *Tx) error {
				return tx.PutReader(nil, io.MultiReader(&countingReader{n: 5 << 20}, readerFunc(func([]byte) (int, error) { panic("of the reader") })), UnknownSize)
			})
		})
	}
	require.NoError(t, db.Put([]byte("k"), sized(5<<20, 'v')))
}

// TestPutReaderRefuses: a put that cannot succeed is refused before anything is read, if that can be known.
func TestPutReaderRefuses(t *testing.T) {
	db := newDB(t, nil)
	untouched := readerFunc(func([]byte) (int, error) { t.Error("read"); return 0, io.EOF })
	require.NoError(t, db.Update(func(tx *Tx) error {
		require.ErrorIs(t, tx.PutReader(nil, untouched, maxValue+1), ErrValueTooLarge)
		require.ErrorIs(t, tx.PutReader(make([]byte, maxKey+1), untouched, 1), ErrKeyTooLarge)
		require.ErrorContains(t, tx.PutReader(nil, untouched, -2), "cannot have")
		require.NoError(t, tx.PutReader(nil, untouched, 0))
		return nil
	}))
	require.NoError(t, db.View(func(tx *Tx) error {
		require.ErrorIs(t, tx.PutReader(nil, untouched, 1), ErrReadOnly)
		return nil
	}))
	tx, err := db.Begin(TxOptions{})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.ErrorIs(t, tx.PutReader(nil, untouched, 1), ErrTxDone)

	// This tests the limit without 4 GiB of data.
	for _, size := range []int64{UnknownSize, maxValue} {
		s := &valueSource{tx: &Tx{txLink: &txLink{&txShared{}}}, r: &countingReader{n: 100}, size: size, read: maxValue - 10}
		n, err := io.Copy(io.Discard, s)
		if size == UnknownSize {
			require.ErrorIs(t, err, ErrValueTooLarge)
			require.EqualValues(t, 11, n)
		} else {
			require.NoError(t, err)
			require.EqualValues(t, 10, n)
		}
	}
	s := &valueSource{tx: &Tx{txLink: &txLink{&txShared{}}}, r: &countingReader{n: 10}, size: UnknownSize, read: maxValue - 10}
	n, err := io.Copy(io.Discard, s)
	require.NoError(t, err)
	require.EqualValues(t, 10, n)
}

// TestPutReaderOfTransaction: the reader may use the transaction, and even end it.
func TestPutReaderOfTransaction(t *testing.T) {
	for name, opts := range map[string]*Options{"": nil, "aging": {MaxSnapshotAge: patience}} {
		t.Run(name, func(t *testing.T) {
			db := newDB(t, opts)
			whole := sized(3<<20, 'v')
			require.NoError(t, db.Put([]byte("from"), whole))
			require.NoError(t, db.Update(func(tx *Tx) error {
				r, n, err := tx.ValueReader([]byte("from"))
				require.NoError(t, err)
				once := false
				return tx.PutReader([]byte("to"), readerFunc(func(p []byte) (int, error) {
					if !once {
						once = true
						require.NoError(t, tx.Put([]byte("meanwhile"), sized(2<<20, 'm')))
						require.NoError(t, tx.Put([]byte("to"), []byte("replaced")))
					}
					return r.Read(p)
				}), n)
			}))
			got, err := db.Get([]byte("to"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(whole, got))
			got, err = db.Get([]byte("meanwhile"))
			require.NoError(t, err)
			require.Len(t, got, 2<<20)

			for _, end := range []func(*Tx) error{(*Tx).Rollback, (*Tx).Commit} {
				tx, err := db.Begin(TxOptions{})
				require.NoError(t, err)
				require.NoError(t, tx.Put([]byte("other"), nil))
				given := &countingReader{n: 5 << 20}
				require.ErrorIs(t, tx.PutReader([]byte("ended"), readerFunc(func(p []byte) (int, error) {
					if given.given > 2<<20 {
						require.NoError(t, end(tx))
					}
					return given.Read(p)
				}), UnknownSize), ErrTxDone)
			}
			ok, err := db.Has([]byte("ended"))
			require.NoError(t, err)
			require.False(t, ok)
			require.NoError(t, db.Check(t.Context()))
		})
	}
}

// TestPutReaderFull: a value for which there is no room gives ErrFull, as with Put, and its segments are freed.
func TestPutReaderFull(t *testing.T) {
	db := newDB(t, &Options{MaxFileSize: 32 << 20})
	require.ErrorIs(t, db.Update(func(tx *Tx) error {
		require.ErrorIs(t, tx.PutReader([]byte("k"), &countingReader{n: 100 << 20}, UnknownSize), ErrFull)
		return nil
	}), ErrFull)
	require.NoError(t, db.Put([]byte("k"), sized(5<<20, 'v')))
	require.NoError(t, db.Check(t.Context()))
}

// TestPutReaderMemory: a long value is never in memory as a whole, neither while it is written nor while it is
// read.
func TestPutReaderMemory(t *testing.T) {
	size := int64(256 << 20)
	if testing.Short() || raceEnabled {
		size = 64 << 20
	}
	db := newDB(t, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, db.Update(func(tx *Tx) error { return tx.PutReader([]byte("k"), &countingReader{n: size}, UnknownSize) }))
	require.NoError(t, db.View(func(tx *Tx) error {
		c := tx.Cursor()
		require.True(t, c.First())
		for _, open := range []func() (io.ReadCloser, int64, error){c.ValueReader, func() (io.ReadCloser, int64, error) { return tx.ValueReader([]byte("k")) }} {
			r, n, err := open()
			require.NoError(t, err)
			require.EqualValues(t, size, n)
			same, err := sameBytes(r, &countingReader{n: size})
			require.NoError(t, err)
			require.True(t, same)
		}
		return nil
	}))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), "all allocations, also of what was freed")
}

func sameBytes(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(a, x)
		if _, yerr := io.ReadFull(b, y[:n]); yerr != nil && n > 0 || !bytes.Equal(x[:n], y[:n]) {
			return false, yerr
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			n, _ := b.Read(y[:1])
			return n == 0, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// TestCursorValueReader: a cursor's reader returns the value at the cursor, whether it is the tree's or the
// transaction's own, in memory or not.
func TestCursorValueReader(t *testing.T) {
	db := newDB(t, &Options{MemoryLimit: 1 << 20})
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range 30 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "tree%02d", i), sized(i*i*2000, byte(i))))
		}
		return nil
	}))
	verify := func(tx *Tx) (n int) {
		c := tx.Cursor()
		_, _, err := c.ValueReader()
		require.ErrorIs(t, err, ErrNotFound)
		for c.Next() {
			r, size, err := c.ValueReader()
			require.NoError(t, err)
			got, err := io.ReadAll(r)
			require.NoError(t, err)
			require.True(t, bytes.Equal(c.Value(), got), "%s", c.Key())
			require.EqualValues(t, len(got), size)
			require.NoError(t, r.Close())
			n++
		}
		require.NoError(t, c.Err())
		return n
	}
	var ended *Cursor
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range 2000 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "own%04d", i), sized(i%500, byte(i))))
		}
		require.NoError(t, tx.Put([]byte("own"), sized(2<<20, 'o')))
		require.Equal(t, 2031, verify(tx))
		ended = tx.Cursor()
		require.True(t, ended.First())
		return nil
	}))
	_, _, err := ended.ValueReader()
	require.ErrorIs(t, err, ErrTxDone)
	require.NoError(t, db.View(func(tx *Tx) error { require.Equal(t, 2031, verify(tx)); return nil }))
}
