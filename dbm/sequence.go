package dbm

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

// Sequence hands out the numbers 1, 2, 3 and so on, each once, to any number of goroutines. It takes numbers in
// blocks from a record whose value is the last number taken, in the form of Tx.Increment: one commit for each
// block. Numbers of a block that were not handed out are lost when the process ends, so there are gaps, at most one
// block for each process that ended. For numbers without gaps, call Tx.Increment in the transaction that uses the
// number: if that transaction is rolled back, no number is taken.
//
// Several sequences on one key, and calls of Increment on it, never get the same number.
type Sequence struct {
	db    *DB
	key   []byte
	block int64

	mu   sync.Mutex // guards next and last
	next int64      // the next number to hand out
	last int64      // the last number of the block; if it is below next, none are left
}

// Sequence returns a sequence that takes its numbers from the record with the given key, in blocks of the given
// size. It writes nothing before the first Next. ErrKeyTooLarge.
func (db *DB) Sequence(key []byte, block int64) (*Sequence, error) {
	if block < 1 {
		return nil, fmt.Errorf("flashdbm: a sequence with blocks of %d numbers: a block must have at least 1", block)
	}
	if err := checkSizes(key, nil); err != nil {
		return nil, err
	}
	return &Sequence{db: db, key: append([]byte{}, key...), block: block, next: 1}, nil
}

// Next returns the next number. The first number of a block costs a commit, with the errors of DB.Increment:
// ErrNotNumber if the record holds something else, ErrOverflow if the next block would go beyond the last 64-bit
// number. If that commit survives a crash, its numbers are not handed out again. Options.Durability says which
// commits survive: in Durable mode all do.
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
	if n == math.MaxInt64 { // no number follows
		s.next, s.last = 1, 0
	} else {
		s.next++
	}
	return n, nil
}

// Release gives back the unused numbers of the current block. If numbers were taken from the record since the
// block was, the unused ones are lost, which is no error. The sequence may be used again.
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
