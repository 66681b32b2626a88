package main

import (
	"fmt"
	"testing"

	"flashdbm/dbm"

	"github.com/stretchr/testify/require"
)

// fillRound writes the transactions 1 to counts of each stream of round 0.
func fillRound(t *testing.T, path string, counts streamCounts) {
	db, err := dbm.Open(path, &dbm.Options{Durability: dbm.Buffered})
	require.NoError(t, err)
	for stream, count := range counts {
		for number := 1; number <= count; number++ {
			require.NoError(t, db.Update(killTransaction{0, stream, number}.write))
		}
	}
	require.NoError(t, db.Close())
}

// prove returns the proof of round 0.
func prove(t *testing.T, acknowledged streamCounts) func(tx *dbm.Tx) error {
	return func(tx *dbm.Tx) error {
		found, err := findRound(t.Context(), tx, &demoRow{}, 0)
		if err != nil {
			return err
		}
		return proveRound(tx, 0, acknowledged, found)
	}
}

func TestProveRound(t *testing.T) {
	t.Parallel()
	told := streamCounts{5, 6, 7, 8}
	some := killTransaction{0, 2, 4}
	nothing := func(*dbm.Tx) error { return nil }
	for name, test := range map[string]struct {
		there streamCounts
		spoil func(tx *dbm.Tx) error
		says  string // part of the error, or empty if the proof must succeed
	}{
		"all":            {told, nothing, ""},
		"one under way":  {streamCounts{5, 7, 7, 9}, nothing, ""},
		"one lost":       {streamCounts{5, 6, 6, 8}, nothing, "stream 2: transaction 7 was acknowledged, the last one there is 6"},
		"one too many":   {streamCounts{5, 6, 9, 8}, nothing, "stream 2: transaction 9 is there"},
		"part missing":   {told, func(tx *dbm.Tx) error { return tx.Delete(some.key(1)) }, "expected part 1"},
		"end missing":    {told, func(tx *dbm.Tx) error { return tx.Delete(some.key(some.parts() - 1)) }, "of its 7 records"},
		"value changed":  {told, func(tx *dbm.Tx) error { return tx.Put(some.key(1), []byte("x")) }, "not what was written"},
		"record more":    {told, func(tx *dbm.Tx) error { return tx.Put(fmt.Appendf(some.prefix(), "9"), nil) }, "expected part 7"},
		"record astray":  {told, func(tx *dbm.Tx) error { return tx.Put([]byte("kill/000/2/00000099/0"), nil) }, "but 143 are there"},
		"last too old":   {told, func(tx *dbm.Tx) error { return tx.Put([]byte("last/2"), []byte("0 6")) }, `"last/2" is "0 6"`},
		"last not there": {told, func(tx *dbm.Tx) error { return tx.Delete([]byte("last/2")) }, `"last/2"`},
		"gap": {told, func(tx *dbm.Tx) error {
			for part := range some.parts() {
				if err := tx.Delete(some.key(part)); err != nil {
					return err
				}
			}
			return nil
		}, "belong to transactions 1 to [5 6 3 8]"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			fillRound(t, path, test.there)
			if test.says != "" {
				spoilAndProve(t, path, test.spoil, prove(t, told), test.says)
				return
			}
			db, err := dbm.Open(path, nil)
			require.NoError(t, err)
			require.NoError(t, db.View(prove(t, told)))
			require.NoError(t, db.Close())
		})
	}
}

func TestReadTwiceFindsImbalance(t *testing.T) {
	path := newPath(t)
	db, err := dbm.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, openAccounts(t.Context(), db))
	require.NoError(t, db.View(readTwice))
	require.NoError(t, db.Close())
	spoilAndProve(t, path, func(tx *dbm.Tx) error { return putBalance(tx, 3, 1) }, readTwice, "the accounts hold 15001, not 16000")

	db, err = dbm.Open(path, nil)
	require.NoError(t, err)
	b := &bank{db: db, expected: map[int]int64{}}
	require.ErrorContains(t, b.compareAccounts(t.Context(), &demoRow{}), "account 3 holds 1, the acknowledged transfers leave 1000")
	require.NoError(t, db.Close())
}
