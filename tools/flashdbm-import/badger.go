package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/spf13/cobra"
)

const badgerHelp = `badger copies the newest version of each key of a Badger directory that is
neither deleted nor expired, and when it expires, if it does. A database that was not closed cleanly must be
opened and closed by a program of its own first, for reading it would change it.`

func newBadgerCommand(began *bool) *cobra.Command {
	var keyFile, values string
	cmd := &cobra.Command{
		Use: "badger DIRECTORY DATABASE", Short: "Import a Badger directory", Long: badgerHelp, Args: cobra.ExactArgs(2),
		Example: "  flashdbm-import badger old new.fdbm",
	}
	cmd.RunE = withSource(began, func(ctx context.Context, source, target string) error {
		return importBadger(ctx, source, values, keyFile, target)
	})
	cmd.Flags().StringVar(&keyFile, "encryption-key-file", "", "read the key of an encrypted database from `FILE`")
	cmd.Flags().StringVar(&values, "values", "", "the `DIRECTORY` of the value log, if it is another one")
	return cmd
}

func importBadger(ctx context.Context, source, values, keyFile, path string) (err error) {
	defer faultsPanic()()
	if _, err := os.Stat(filepath.Join(source, badger.ManifestFilename)); err != nil {
		return fmt.Errorf("%s is not the directory of a Badger database: %w", source, err)
	}
	options := badger.DefaultOptions(source).WithReadOnly(true).WithLogger(nil).WithMetricsEnabled(false)
	if values != "" {
		options = options.WithValueDir(values)
	}
	if keyFile != "" {
		key, err := os.ReadFile(keyFile)
		if err != nil {
			return err
		}
		options = options.WithEncryptionKey(key).WithIndexCacheSize(64 << 20)
	}
	db, err := badger.Open(options)
	if errors.Is(err, badger.ErrTruncateNeeded) {
		return fmt.Errorf("%s was not closed cleanly: open and close it with a program of its own first: %w", source, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return importInto(ctx, path, func(t *target) error {
		tagged := 0
		err := db.View(func(tx *badger.Txn) error {
			it := tx.NewIterator(badger.DefaultIteratorOptions)
			defer it.Close()
			for it.Rewind(); it.Valid(); it.Next() {
				item := it.Item()
				if item.UserMeta() != 0 {
					tagged++
				}
				var until time.Time
				if at := item.ExpiresAt(); at != 0 {
					until = time.Unix(int64(min(at, math.MaxInt32<<8)), 0)
				}
				if err := item.Value(func(value []byte) error { return t.addUntil(item.Key(), value, until) }); err != nil {
					return err
				}
			}
			return nil
		})
		if tagged > 0 {
			note("%d records have a byte of user meta: it is not copied", tagged)
		}
		return err
	})
}
