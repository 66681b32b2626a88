package streams

import (
	"encoding/binary"
	"os"
	"sync"
)

// Stage says how far the process has come.
type Stage uint64

const (
	Starting Stage = iota
	Opening        // Open was called
	Running        // Open has returned; Found holds what was there
	Closing        // Close was called
	Closed         // Close has returned
)

// A Record is a file in which a process notes what it does. One process writes it, from any of its goroutines;
// another may read it at any time. Writes reach the operating system at once, so none is lost when the process is
// killed.
//
// A number takes 16 bytes: itself and its complement, so that a reader recognizes a number in the middle of being
// written, and reads it again.
type Record struct {
	file *os.File
	mu   sync.Mutex // guards own
	own  [fields]uint64
}

// The fields of a record: some for the process, then four for each stream.
const (
	stageField = iota
	openField  // nanoseconds that Open took
	streamFields
)

const (
	found    = iota // number of the newest transaction that was there after Open
	begun           // number of the newest transaction begun
	returned        // number of the newest one whose commit has returned
	durable         // number of the newest one promised to survive a power cut
	perStream

	fields     = streamFields + perStream*Count
	fieldBytes = 16
)

// OpenRecord opens the record at path, or creates an empty one.
func OpenRecord(path string) (*Record, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &Record{file: f}, nil
}

// Close closes the file.
func (r *Record) Close() error { return r.file.Close() }

// raise sets a field, unless that has the same or a larger value already.
func (r *Record) raise(field int, n uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n <= r.own[field] {
		return nil
	}
	r.own[field] = n
	b := binary.LittleEndian.AppendUint64(nil, n)
	b = binary.LittleEndian.AppendUint64(b, ^n)
	_, err := r.file.WriteAt(b, int64(field)*fieldBytes)
	return err
}

// read returns a field, 0 if it was never written.
func (r *Record) read(field int) uint64 {
	var b [fieldBytes]byte
	for range 1000 {
		if n, err := r.file.ReadAt(b[:], int64(field)*fieldBytes); n < len(b) || err != nil {
			return 0
		}
		n, not := binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])
		if n == 0 && not == 0 {
			return 0
		}
		if n == ^not {
			return n
		}
	}
	panic("streams: a record that is never whole")
}

func (r *Record) numbers(which int) (n Numbers) {
	for s := range Count {
		n[s] = r.read(streamFields + s*perStream + which)
	}
	return n
}

func (r *Record) note(which, stream int, n uint64) error {
	return r.raise(streamFields+stream*perStream+which, n)
}

// Stage returns how far the process has come, or had come when it ended.
func (r *Record) Stage() Stage { return Stage(r.read(stageField)) }

// OpenTime returns how long Open took in nanoseconds, 0 if it has not returned.
func (r *Record) OpenTime() int64 { return int64(r.read(openField)) }

// Found returns the newest transactions that were there after Open.
func (r *Record) Found() Numbers { return r.numbers(found) }

// Begun returns the newest transactions begun. It must be read after the database that is compared with it.
func (r *Record) Begun() Numbers { return r.numbers(begun) }

// Returned returns the newest transactions whose commits have returned. Unless the mode is Buffered, they survive
// the end of the process. It must be read before the database that is compared with it.
func (r *Record) Returned() Numbers { return r.numbers(returned) }

// Durable returns the newest transactions promised to survive a power cut. It must be read before the database that
// is compared with it.
func (r *Record) Durable() Numbers { return r.numbers(durable) }
