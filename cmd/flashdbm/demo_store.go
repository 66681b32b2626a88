package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"flashdbm/dbm"
)

// filesPerTransaction is how many files demo stores in one durable transaction.
const filesPerTransaction = 100

// filePrefix keeps the stored files apart from the other records of demo.
const filePrefix = "file/"

// store stores every file of the source and returns what it stored.
func (d *demo) store(ctx context.Context) (files []sourceFile, err error) {
	if files, err = sourceFiles(d.source); err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there are no files in %s; name another directory with --source", d.source)
	}
	err = d.phase("store", func(db *dbm.DB, row *demoRow) error {
		if err := d.storeFiles(ctx, db, row, files); err != nil {
			return err
		}
		d.say("stored %s files of %s, %s, %d in each durable transaction",
			formatCount(row.Records), d.source, formatBytes(row.Bytes), filesPerTransaction)
		return nil
	})
	return files, err
}

func (d *demo) storeFiles(ctx context.Context, db *dbm.DB, row *demoRow, files []sourceFile) error {
	line := d.program.startProgress(row.Phase, formatRecords, int64(len(files)), false)
	defer line.Stop()
	for batch := range slices.Chunk(files, filesPerTransaction) {
		if err := storeBatch(ctx, db, row, batch); err != nil {
			return err
		}
		line.Add(int64(len(batch)))
	}
	return nil
}

// storeBatch stores files in one transaction, which reads nothing and so runs only once.
func storeBatch(ctx context.Context, db *dbm.DB, row *demoRow, files []sourceFile) error {
	return db.UpdateContext(ctx, dbm.TxOptions{}, func(tx *dbm.Tx) error {
		for _, file := range files {
			value, err := os.ReadFile(file.path)
			if err != nil {
				return err
			}
			key := []byte(filePrefix + file.key)
			if err := tx.Put(key, value); err != nil {
				return err
			}
			row.add(key, value)
		}
		return nil
	})
}

// verify compares everything that store stored with its files, in one snapshot, and then checks every page.
func (d *demo) verify(ctx context.Context, name string, files []sourceFile) error {
	return d.phase(name, func(db *dbm.DB, row *demoRow) error {
		err := db.ViewContext(ctx, func(tx *dbm.Tx) error {
			if err := d.verifyFiles(ctx, tx, row, files); err != nil {
				return err
			}
			return d.countFiles(tx, files)
		})
		if err != nil {
			return err
		}
		if err := db.Check(ctx); err != nil {
			return fmt.Errorf("check: %w", err)
		}
		d.say("%s: all %s values have the SHA-256 of their files, every page checks", name, formatCount(row.Records))
		return nil
	})
}

func (d *demo) verifyFiles(ctx context.Context, tx *dbm.Tx, row *demoRow, files []sourceFile) error {
	line := d.program.startProgress(row.Phase, formatRecords, int64(len(files)), false)
	defer line.Stop()
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := verifyFile(tx, row, file); err != nil {
			return err
		}
		line.Add(1)
	}
	return nil
}

// verifyFile reads the file again and compares it with the stored value.
func verifyFile(tx *dbm.Tx, row *demoRow, file sourceFile) error {
	key := []byte(filePrefix + file.key)
	stored, err := tx.Get(key)
	if err != nil {
		return fmt.Errorf("key %q: %w", key, err)
	}
	content, err := os.ReadFile(file.path)
	if err != nil {
		return err
	}
	if have, want := sha256.Sum256(stored), sha256.Sum256(content); have != want {
		return fmt.Errorf("key %q: the stored %d bytes have SHA-256 %x, the %d bytes of %s have %x",
			key, len(stored), have, len(content), file.path, want)
	}
	row.add(key, stored)
	return nil
}

// countFiles compares numbers of records with numbers of files: all of them,
// and those in the largest directory, listed again.
func (d *demo) countFiles(tx *dbm.Tx, files []sourceFile) error {
	if have := countPrefix(tx, filePrefix); have != len(files) {
		return fmt.Errorf("%d records begin with %q, %d files were stored", have, filePrefix, len(files))
	}
	prefix, directory := filePrefix, d.source
	if largest := largestDirectory(files); largest != "" {
		prefix += largest + "/"
		directory = filepath.Join(directory, filepath.FromSlash(largest))
	}
	listed, err := sourceFiles(directory)
	if err != nil {
		return err
	}
	have := countPrefix(tx, prefix)
	if have != len(listed) {
		return fmt.Errorf("%d records begin with %q, but %s has %d files", have, prefix, directory, len(listed))
	}
	d.say("%s records begin with %q, as many as the directory has files", formatCount(int64(have)), prefix)
	return nil
}

func countPrefix(tx *dbm.Tx, prefix string) (n int) {
	for range tx.Prefix([]byte(prefix)) {
		n++
	}
	return n
}

// largestDirectory returns the directory at the second level, such as
// "src/cmd", with the most files in and below it; "" if there is none.
func largestDirectory(files []sourceFile) (largest string) {
	counts := map[string]int{}
	for _, file := range files {
		parts := strings.SplitN(file.key, "/", 3)
		if len(parts) < 3 {
			continue
		}
		directory := parts[0] + "/" + parts[1]
		counts[directory]++
		if n := counts[directory]; n > counts[largest] || n == counts[largest] && directory < largest {
			largest = directory
		}
	}
	return largest
}
