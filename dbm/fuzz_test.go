package dbm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// FuzzFile changes bytes of a whole database, corrects all checksums, and uses the database in every way. A change
// takes five bytes: the page, the offset in the page, and the new byte. Odd page numbers select a page of the log
// from the older superblock on, even ones any page.
func FuzzFile(f *testing.F) {
	f.Add(false, []byte{})
	f.Add(true, []byte{4, 0, 44, 0, 9})
	f.Add(true, []byte{3, 0, 5, 0, 1, 9, 0, 90, 0, 255})
	f.Add(false, []byte{20, 0, 42, 0, 255, 22, 0, 43, 0, 3})
	var once sync.Once
	var made [2]*specimen
	f.Fuzz(func(t *testing.T, closed bool, program []byte) {
		once.Do(func() { made[0], made[1] = newSpecimen(t, false, true), newSpecimen(t, true, true) })
		s := made[0]
		if closed {
			s = made[1]
		}
		h := newSealer(s.file, int(s.load.segmentPages))
		for ; len(program) >= 5; program = program[5:] {
			page, at := int(binary.LittleEndian.Uint16(program)), int(binary.LittleEndian.Uint16(program[2:]))
			if page%2 == 1 {
				page = h.chain[page/2%len(h.chain)]
			} else {
				page = page / 2 % (len(h.file) / logstore.PageSize)
			}
			h.page(page)[at%logstore.PageSize] = program[4]
		}
		h.seal()
		bad := specimen{file: h.file, load: s.load}
		mem := bad.mem(len(h.file))
		defer mem.Release()
		for _, readOnly := range []bool{true, false} {
			_, err := s.endure(mem, readOnly)
			require.NoError(t, err)
		}
	})
}

// FuzzAPI runs a program of calls on a database and on a sorted map and compares all results. A call takes two
// bytes, and more for keys and values.
func FuzzAPI(f *testing.F) {
	f.Add([]byte("\x00\x01\x01\x02\x02\x03\x03\x04\x04\x05\x05\x06\x06\x07\x07\x08\x08\x09\x09\x0a\x0a\x0b\x0b\x0c"))
	f.Add(bytes.Repeat([]byte{0, 7, 0, 200, 0, 90, 9, 1, 5, 3, 10, 1}, 20))
	f.Add(bytes.Repeat([]byte{1, 3, 4, 4, 7, 2, 0, 255, 8, 1, 6, 9, 11, 1}, 20))
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 2000 {
			return
		}
		p := &apiProgram{t: t, code: program, mem: vfs.NewMem(16 << 20), committed: map[string]string{}}
		defer func() { p.mem.Release() }()
		p.open()
		for len(p.code) > 0 {
			p.call()
		}
		p.end(false)
		p.compare()
		require.NoError(t, p.db.Check(context.Background()))
		require.NoError(t, p.db.Close())
	})
}

type apiProgram struct {
	t         *testing.T
	code      []byte
	mem       *vfs.Mem
	db        *DB
	committed map[string]string

	tx     *Tx // nil if none is open
	own    map[string]string
	cursor *Cursor
	at     string // key of the cursor
	valid  bool   // the cursor is at a record, or where one was
}

func (p *apiProgram) open() {
	l := &load{segmentPages: 8, memoryLimit: 256 << 10, redoLimit: 64 << 10, stepPages: 3}
	o := l.options(rand.New(rand.NewPCG(1, 1)))
	o.LastSlots = 4 // so few that nearly all keys collide
	db, err := openEngine(p.mem, crashPath, o)
	require.NoError(p.t, err)
	p.db = db
}

func (p *apiProgram) byte() int {
	if len(p.code) == 0 {
		return 0
	}
	b := p.code[0]
	p.code = p.code[1:]
	return int(b)
}

// key returns one of 256 keys. Some are long, some have a common prefix.
func (p *apiProgram) key() string {
	n := p.byte()
	switch {
	case n%16 == 15:
		return fmt.Sprintf("%01200d", n)
	case n%4 == 3:
		return fmt.Sprintf("%0300d", n)
	case n == 0:
		return ""
	}
	return string([]byte{byte(n)})
}

func (p *apiProgram) value() string {
	n := p.byte()
	size := n
	switch n % 8 {
	case 7:
		size = n * 100
	case 6:
		size = n * 10
	}
	return string(bytes.Repeat([]byte{byte(n)}, size))
}

// begin begins a transaction if there is none.
func (p *apiProgram) begin() {
	if p.tx != nil {
		return
	}
	tx, err := p.db.Begin(TxOptions{Serializable: len(p.code)%2 == 0})
	require.NoError(p.t, err)
	p.tx, p.own, p.cursor, p.valid = tx, maps.Clone(p.committed), tx.Cursor(), false
}

func (p *apiProgram) end(commit bool) {
	if p.tx == nil {
		return
	}
	if commit {
		require.NoError(p.t, p.tx.Commit())
		p.committed = p.own
	} else {
		require.NoError(p.t, p.tx.Rollback())
	}
	p.tx, p.cursor = nil, nil
}

func (p *apiProgram) call() {
	t := p.t
	switch op := p.byte() % 16; op {
	case 0, 1, 2:
		p.begin()
		k, v := p.key(), p.value()
		require.NoError(t, p.tx.Put([]byte(k), []byte(v)))
		p.own[k] = v
	case 3:
		p.begin()
		k, v := p.key(), p.value()
		err := p.tx.Insert([]byte(k), []byte(v))
		if _, there := p.own[k]; there {
			require.ErrorIs(t, err, ErrExists)
		} else {
			require.NoError(t, err)
			p.own[k] = v
		}
	case 4:
		p.begin()
		k := p.key()
		require.NoError(t, p.tx.Delete([]byte(k)))
		delete(p.own, k)
	case 5:
		p.begin()
		k := p.key()
		got, err := p.tx.Get([]byte(k))
		want, there := p.own[k]
		require.Equal(t, !there, errors.Is(err, ErrNotFound))
		require.Equal(t, want, string(got))
	case 6, 7, 8, 9:
		p.begin()
		p.move(op)
	case 10:
		p.end(true)
	case 11:
		p.end(false)
	case 12:
		p.end(true)
		require.NoError(t, p.db.Checkpoint())
	case 13:
		p.end(false)
		require.NoError(t, p.db.Close())
		p.open()
	case 14: // a power failure
		p.end(true)
		image := p.mem.Crash(vfs.Policy(p.byte()%len(vfs.Policies())), 1)
		require.NoError(t, p.db.Close())
		p.mem.Release()
		p.mem = image
		p.open()
		p.compare()
	case 15:
		p.begin()
		n, err := p.tx.Len()
		require.NoError(t, err)
		require.EqualValues(t, len(p.own), n)
	}
}

// move moves the cursor, or deletes at its position, and compares the position.
func (p *apiProgram) move(op int) {
	t := p.t
	keys := slices.Sorted(maps.Keys(p.own))
	way := p.byte()
	var want int
	var got bool
	switch op {
	case 6:
		k := p.key()
		got, want = p.cursor.Seek([]byte(k)), sort.SearchStrings(keys, k)
		p.at = k
	case 7:
		if way%2 == 0 {
			got, want = p.cursor.First(), 0
		} else {
			got, want = p.cursor.Last(), len(keys)-1
		}
	case 8:
		if !p.valid {
			return
		}
		i, on := slices.BinarySearch(keys, p.at)
		if way%2 == 0 {
			if want = i; on {
				want++
			}
			got = p.cursor.Next()
		} else {
			got, want = p.cursor.Prev(), i-1
		}
	case 9:
		if !p.valid || p.cursor.Key() == nil {
			return
		}
		require.NoError(t, p.cursor.Delete())
		delete(p.own, p.at)
		return
	}
	require.NoError(t, p.cursor.Err())
	there := want >= 0 && want < len(keys)
	require.Equal(t, there, got)
	if p.valid = there; there {
		p.at = keys[want]
		require.Equal(t, p.at, string(p.cursor.Key()))
		require.Equal(t, p.own[p.at], string(p.cursor.Value()))
	}
}

// compare reads the whole database in both directions.
func (p *apiProgram) compare() {
	t := p.t
	require.NoError(t, p.db.View(func(tx *Tx) error {
		found := map[string]string{}
		last := ""
		for k, v := range tx.All() {
			require.True(t, len(found) == 0 || last < string(k))
			last = string(k)
			found[last] = string(v)
		}
		require.True(t, maps.Equal(p.committed, found))
		n := 0
		for k := range tx.Backward(nil, nil) {
			require.True(t, n == 0 || last > string(k))
			last = string(k)
			n++
		}
		require.Equal(t, len(found), n)
		return tx.Err()
	}))
}
