package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"flashdbm/dbm"
)

const (
	transferWriters = 8
	transferReaders = 4
	accounts        = 16 // few, so that writers conflict
	openingBalance  = 1000
	accountPrefix   = "account/"
)

// transfer runs writers that move money between a few accounts, and readers that add up all accounts. The sum is
// the same in every snapshot. At the end each account has its opening balance plus the acknowledged transfers.
func (d *demo) transfer(ctx context.Context) error {
	return d.phase("transfer", func(db *dbm.DB, row *demoRow) error {
		if err := openAccounts(ctx, db); err != nil {
			return err
		}
		conflicts := db.Stats().Conflicts
		bank := &bank{db: db, expected: make(map[int]int64)}
		if err := bank.run(ctx, d.transfers); err != nil {
			return err
		}
		if err := bank.compareAccounts(ctx, row); err != nil {
			return err
		}
		conflicts = db.Stats().Conflicts - conflicts
		d.say("%s transfers by %d writers met %s conflicts; %s snapshots of %d readers stood still and balanced; no update was lost",
			formatCount(int64(transferWriters*d.transfers)), transferWriters, formatCount(int64(conflicts)),
			formatCount(bank.snapshots), transferReaders)
		return nil
	})
}

func openAccounts(ctx context.Context, db *dbm.DB) error {
	return db.UpdateContext(ctx, dbm.TxOptions{}, func(tx *dbm.Tx) error {
		for account := range accounts {
			if err := putBalance(tx, account, openingBalance); err != nil {
				return err
			}
		}
		return nil
	})
}

// bank is the state that the writers and readers of one run share.
type bank struct {
	db *dbm.DB

	mu        sync.Mutex    // guards the fields below
	expected  map[int]int64 // account -> sum of the acknowledged transfers
	snapshots int64         // read
}

// run starts the writers and readers and waits for all of them. The first
// error ends the others.
func (b *bank) run(ctx context.Context, transfers int) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	finished := make(chan struct{}) // closed when the writers are done

	var writers, readers sync.WaitGroup
	for writer := range transferWriters {
		writers.Go(func() {
			if err := b.write(ctx, uint64(writer), transfers); err != nil {
				fail(err)
			}
		})
	}
	for range transferReaders {
		readers.Go(func() {
			if err := b.read(ctx, finished); err != nil {
				fail(err)
			}
		})
	}
	writers.Wait()
	close(finished)
	readers.Wait()
	return context.Cause(ctx)
}

// write makes transfers, each between two random accounts.
func (b *bank) write(ctx context.Context, writer uint64, transfers int) error {
	random := rand.New(rand.NewPCG(writer, accounts))
	for range transfers {
		from := random.IntN(accounts)
		to := (from + 1 + random.IntN(accounts-1)) % accounts
		wanted := 1 + random.Int64N(openingBalance/10)
		var amount int64 // set by the last run of the function, which is the one that was committed
		err := error(dbm.ErrConflict)
		for errors.Is(err, dbm.ErrConflict) { // on a slow device the other writers may commit first many times
			err = b.db.UpdateContext(ctx, dbm.TxOptions{}, func(tx *dbm.Tx) (err error) {
				amount, err = move(tx, from, to, wanted)
				return err
			})
		}
		if err != nil {
			return fmt.Errorf("transfer: %w", err)
		}
		b.mu.Lock()
		b.expected[from] -= amount
		b.expected[to] += amount
		b.mu.Unlock()
	}
	return nil
}

// move takes up to wanted from one account to another and returns how much.
func move(tx *dbm.Tx, from, to int, wanted int64) (amount int64, err error) {
	source, err := balance(tx, from)
	if err != nil {
		return 0, err
	}
	target, err := balance(tx, to)
	if err != nil {
		return 0, err
	}
	amount = min(wanted, source)
	if err := putBalance(tx, from, source-amount); err != nil {
		return 0, err
	}
	return amount, putBalance(tx, to, target+amount)
}

// read takes snapshots until finished is closed, at least one.
func (b *bank) read(ctx context.Context, finished <-chan struct{}) error {
	for {
		if err := b.db.ViewContext(ctx, readTwice); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		b.mu.Lock()
		b.snapshots++
		b.mu.Unlock()
		select {
		case <-finished:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
	}
}

// readTwice reads all accounts of a snapshot in a scan and, after some time in which writers commit, one by one.
// The two must agree, and balance.
func readTwice(tx *dbm.Tx) error {
	first, err := scanBalances(tx)
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Millisecond)
	second := make(map[int]int64)
	var sum int64
	for account := range accounts {
		if second[account], err = balance(tx, account); err != nil {
			return err
		}
		sum += second[account]
	}
	if !maps.Equal(first, second) {
		return fmt.Errorf("the snapshot moved: accounts were %v, then %v", first, second)
	}
	if sum != accounts*openingBalance {
		return fmt.Errorf("the accounts hold %d, not %d: %v", sum, accounts*openingBalance, second)
	}
	return nil
}

// compareAccounts compares every account with the acknowledged transfers.
func (b *bank) compareAccounts(ctx context.Context, row *demoRow) error {
	return b.db.ViewContext(ctx, func(tx *dbm.Tx) error {
		var problems []error
		for account := range accounts {
			have, err := balance(tx, account)
			if err != nil {
				return err
			}
			if want := openingBalance + b.expected[account]; have != want {
				problems = append(problems, fmt.Errorf("account %d holds %d, the acknowledged transfers leave %d: an update was lost", account, have, want))
			}
			row.add(accountKey(account), strconv.AppendInt(nil, have, 10))
		}
		return errors.Join(problems...)
	})
}

func accountKey(account int) []byte {
	return fmt.Appendf(nil, "%s%02d", accountPrefix, account)
}

func putBalance(tx *dbm.Tx, account int, amount int64) error {
	return tx.Put(accountKey(account), strconv.AppendInt(nil, amount, 10))
}

func balance(tx *dbm.Tx, account int) (int64, error) {
	value, err := tx.Get(accountKey(account))
	if err != nil {
		return 0, fmt.Errorf("account %d: %w", account, err)
	}
	return strconv.ParseInt(string(value), 10, 64)
}

func scanBalances(tx *dbm.Tx) (map[int]int64, error) {
	balances := make(map[int]int64)
	for key, value := range tx.Prefix([]byte(accountPrefix)) {
		account, err := strconv.Atoi(string(key[len(accountPrefix):]))
		if err != nil {
			return nil, err
		}
		if balances[account], err = strconv.ParseInt(string(value), 10, 64); err != nil {
			return nil, err
		}
	}
	return balances, tx.Err()
}
