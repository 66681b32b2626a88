package cdb

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// build returns a database of alternating keys and values.
func build(t testing.TB, pairs ...string) []byte {
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := NewWriter(f)
	for i := 0; i < len(pairs); i += 2 {
		require.NoError(t, w.Add([]byte(pairs[i]), []byte(pairs[i+1])))
	}
	require.NoError(t, w.Finish())
	require.NoError(t, f.Close())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}

func open(t testing.TB, b []byte) *Reader {
	r, err := NewReader(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	return r
}

func all(r *Reader) (pairs []string, err error) {
	err = r.Each(func(key, value []byte) error {
		pairs = append(pairs, string(key), string(value))
		return nil
	})
	return pairs, err
}

// TestKnownFile: testdata/tinycdb.cdb was written by tinycdb 0.78. The same records give the same file here, byte for
// byte.
func TestKnownFile(t *testing.T) {
	want, err := os.ReadFile("testdata/tinycdb.cdb")
	require.NoError(t, err)
	pairs := []string{"one", "Hello", "a", "1st", "a", "2nd", "", ""}
	got, err := all(open(t, want))
	require.NoError(t, err)
	require.Equal(t, pairs, got)
	require.Equal(t, want, build(t, pairs...))
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 2, 300, 5000} {
		var pairs []string
		for i := range n {
			pairs = append(pairs, fmt.Sprint(i*7919, strings.Repeat("k", rng.IntN(5))), strings.Repeat("v", rng.IntN(300)))
		}
		r := open(t, build(t, pairs...))
		got, err := all(r)
		require.NoError(t, err)
		require.Equal(t, pairs, got)
		for i := 0; i < len(pairs); i += 2 {
			value, ok, err := r.Get([]byte(pairs[i]))
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, pairs[i+1], string(value))
		}
		_, ok, err := r.Get([]byte("none"))
		require.NoError(t, err)
		require.False(t, ok)
	}
}

func TestDoubledKeys(t *testing.T) {
	r := open(t, build(t, "a", "1", "", "empty", "a", "2", "a", "3"))
	value, ok, err := r.Get([]byte("a"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "1", string(value))
	got, err := all(r)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "1", "", "empty", "a", "2", "a", "3"}, got)
}

// sparse is a file that keeps only its length.
type sparse struct{}

func (sparse) Write(b []byte) (int, error)         { return len(b), nil }
func (sparse) Seek(at int64, _ int) (int64, error) { return at, nil }

func TestTooLarge(t *testing.T) {
	w := NewWriter(sparse{})
	value := make([]byte, 1<<28)
	for range 15 {
		require.NoError(t, w.Add([]byte("k"), value))
	}
	require.ErrorIs(t, w.Add([]byte("k"), value), ErrTooLarge)
	require.ErrorIs(t, w.Add(nil, nil), ErrTooLarge)
	require.ErrorIs(t, w.Finish(), ErrTooLarge)
}

type broken struct{ sparse }

func (broken) Write([]byte) (int, error) { return 0, errors.New("the disk is gone") }

func TestWriteFails(t *testing.T) {
	w := NewWriter(broken{})
	for range 10_000 {
		w.Add([]byte("k"), make([]byte, 100))
	}
	require.ErrorContains(t, w.Finish(), "the disk is gone")
}

// TestCutShort: a small file is truncated to every length. Each call returns an error or a part of the records.
func TestCutShort(t *testing.T) {
	whole := build(t, "one", "Hello", "two", "Goodbye")
	for n := range whole {
		r, err := NewReader(bytes.NewReader(whole[:n]), int64(n))
		require.ErrorIs(t, err, ErrDamaged, n)
		require.Nil(t, r)
	}
	_, err := NewReader(bytes.NewReader(nil), maxSize+1)
	require.ErrorIs(t, err, ErrDamaged)
	r, err := NewReader(bytes.NewReader(whole[:2060]), int64(len(whole))) // truncated while it is read
	require.NoError(t, err)
	_, err = all(r)
	require.ErrorIs(t, err, ErrDamaged)
	_, _, err = r.Get([]byte("one"))
	require.ErrorIs(t, err, ErrDamaged)
}

func TestStops(t *testing.T) {
	enough := errors.New("enough")
	require.ErrorIs(t, open(t, build(t, "a", "1", "b", "2")).Each(func(_, _ []byte) error { return enough }), enough)
}

// FuzzReader: reading any file ends, with no more records than the file can contain.
func FuzzReader(f *testing.F) {
	f.Add(build(f, "one", "Hello"))
	f.Add(build(f, "a", "1", "a", "2", "", ""))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			return
		}
		total := 0
		var keys [][]byte
		err = r.Each(func(key, value []byte) error {
			total += 8 + len(key) + len(value)
			if len(keys) < 10 {
				keys = append(keys, bytes.Clone(key))
			}
			return nil
		})
		require.True(t, err == nil || errors.Is(err, ErrDamaged))
		require.LessOrEqual(t, total, len(b))
		for _, key := range append(keys, []byte("one")) {
			if _, _, err := r.Get(key); err != nil {
				require.ErrorIs(t, err, ErrDamaged)
			}
		}
	})
}
