package dbm

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

// Sequence hands out the numbers 1, 2, 3 and so on, each once, to any number of goroutines. It takes a block of numbers at a time from a
// record, whose value is the last number taken, as a number of Tx.Increment: one commit for each block. Numbers of a block that were not
// handed out are lost with the process, so there are gaps, but of no more than a block for each process that ended. Where there may be none,
// Tx.Increment in the transaction that uses the number is right: what is rolled back takes none.
//
// Several sequences of one key, and Increment beside them, share the numbers out.
type Sequence struct {
	db    *DB
	key   []byte
	block int64

	mu   sync.Mutex
	next int64 // the number to hand out,
	last int64 // up to this one; below next: none are left
}

// Sequence returns a sequence whose numbers are taken from the record with the given key, in blocks of the given size. It writes nothing before
// the first Next. ErrKeyTooLarge.
func (db *DB) Sequence(key []byte, block int64) (*Sequence, error) {
	if block < 1 {
		return nil, fmt.Errorf("flashdbm: a sequence with blocks of %d numbers: 1 or more are wanted", block)
	}
	if err := checkSizes(key, nil); err != nil {
		return nil, err
	}
	return &Sequence{db: db, key: append([]byte{}, key...), block: block, next: 1}, nil
}

// Next returns the next number. With the first one of a block it commits, and the errors are those of DB.Increment: ErrNotNumber if the record
// holds something else, ErrOverflow behind the last number of 64 bits. The number survives what Options.Durability says that the commit does:
// in Durable mode no number comes again.
func (s *Sequence) Next() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next > s.last {
		last, err := s.db.Increment(s.key, s.block)
		if err != nil {
			return 0, err
		}
		s.next, s.last = last-s.block+1, last
	}
	n := s.next
	if n == math.MaxInt64 { // there is none behind it
		s.next, s.last = 1, 0
	} else {
		s.next++
	}
	return n, nil
}

// Release gives back the numbers that are left of the block at hand, unless others were taken from the record since: then they are lost, and
// it is no error. The sequence may be used again.
func (s *Sequence) Release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, last := s.next, s.last
	s.next, s.last = 1, 0
	if next > last {
		return nil
	}
	return s.db.Update(func(tx *Tx) error {
		n, _, err := numberOf(tx, s.key)
		switch {
		case errors.Is(err, ErrNotNumber): // somebody has put something else there
			return nil
		case err != nil || n != last:
			return err
		}
		_, err = tx.Increment(s.key, next-1-last)
		return err
	})
}
