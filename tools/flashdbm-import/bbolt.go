package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	bolt "go.etcd.io/bbolt"
)

const bboltHelp = `bbolt copies all buckets of a bbolt file. The key of a record becomes the names of
its buckets and its key, with --separator between them: "users" and "ann" become
"users/ann". With --bucket the records of one bucket are copied, with keys as
they are in it. If two records would get the same key nothing is imported: give
another separator then, one that no name of a bucket has.`

// bboltImport holds the flags of bbolt.
type bboltImport struct {
	bucket    string
	only      bool
	separator string
}

func newBboltCommand(began *bool) *cobra.Command {
	var flags bboltImport
	cmd := &cobra.Command{
		Use: "bbolt FILE DATABASE", Short: "Import a bbolt file", Long: bboltHelp, Args: cobra.ExactArgs(2),
		Example: "  flashdbm-import bbolt old.db new.fdbm --separator :",
	}
	cmd.RunE = withSource(began, func(ctx context.Context, source, target string) error {
		flags.only = cmd.Flags().Changed("bucket")
		return flags.run(ctx, source, target)
	})
	cmd.Flags().StringVar(&flags.bucket, "bucket", "", "copy the bucket `NAME` only, with its keys as they are")
	cmd.Flags().StringVar(&flags.separator, "separator", "/", "put `TEXT` between the name of a bucket and a key")
	return cmd
}

func (flags *bboltImport) run(ctx context.Context, source, path string) (err error) {
	defer faultsPanic()()
	if err := isFile(source); err != nil {
		return err
	}
	db, err := bolt.Open(source, 0, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if errors.Is(err, bolt.ErrTimeout) {
		return fmt.Errorf("%s: another program has it open: close that first", source)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer file.Close()
	status, err := file.Stat()
	if err != nil {
		return err
	}
	return importInto(ctx, path, func(t *target) error {
		return db.View(func(tx *bolt.Tx) error {
			if err := checkBolt(tx, file, status.Size()); err != nil {
				return fmt.Errorf("%s: %w", source, err)
			}
			if flags.only {
				b := tx.Bucket([]byte(flags.bucket))
				if b == nil {
					return fmt.Errorf("%s has no bucket %q", source, flags.bucket)
				}
				return flags.copy(t, nil, b)
			}
			return tx.ForEach(func(name []byte, b *bolt.Bucket) error { return flags.copy(t, flags.under(nil, name), b) })
		})
	})
}

// under returns what the keys of a bucket begin with. It is in the memory behind prefix, if there is enough of it: so prefixes of many buckets in
// buckets take no more than the longest.
func (flags *bboltImport) under(prefix, name []byte) []byte {
	return append(append(prefix, name...), flags.separator...)
}

// copy copies a bucket and those in it.
func (flags *bboltImport) copy(t *target, prefix []byte, b *bolt.Bucket) error {
	if n := b.Sequence(); n != 0 {
		name := string(prefix)
		if flags.only {
			name = flags.bucket + flags.separator + name
		}
		note("the sequence of bucket %q is %d: it is not copied; Tx.Increment of a key of your choice goes on from there",
			strings.TrimSuffix(name, flags.separator), n)
	}
	return b.ForEach(func(key, value []byte) error {
		if value == nil {
			return flags.copy(t, flags.under(prefix, key), b.Bucket(key))
		}
		err := t.add(append(prefix, key...), value)
		if errors.Is(err, errDoubled) {
			return fmt.Errorf("%w: give another --separator", err)
		}
		return err
	})
}

// isFile reports what is wrong with the name of a source that must be a file.
func isFile(source string) error {
	status, err := os.Stat(source)
	if err == nil && !status.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", source)
	}
	return err
}
