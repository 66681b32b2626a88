package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"flashdbm/dbm"
	"flashdbm/logstore/vfs"
	"flashdbm/tools/flashdbm-import/cdb"
)

const fromCdbHelp = `cdb copies the records of a cdb file, as cdbmake and tinycdb write them. Of a key
that has several records the first one is copied, which is what a lookup finds.`

func newFromCdbCommand(began *bool) *cobra.Command {
	return &cobra.Command{
		Use: "cdb FILE DATABASE", Short: "Import a cdb file", Long: fromCdbHelp, Args: cobra.ExactArgs(2),
		RunE: withSource(began, importCdb),
	}
}

func importCdb(ctx context.Context, source, path string) error {
	if err := isFile(source); err != nil {
		return err
	}
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	status, err := f.Stat()
	if err != nil {
		return err
	}
	r, err := cdb.NewReader(f, status.Size())
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	return importInto(ctx, path, func(t *target) error {
		doubled := 0
		err := r.Each(func(key, value []byte) error {
			err := t.add(key, value)
			if errors.Is(err, errDoubled) {
				doubled++
				return nil
			}
			return err
		})
		if doubled > 0 {
			note("%d records have the key of an earlier one: only the first of each is copied", doubled)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		return nil
	})
}

const toCdbHelp = `to-cdb writes all records of a flashdbm database to a new cdb file, as of one
moment, in the order of their keys. A cdb file has at most 4 GiB.`

func newToCdbCommand(began *bool) *cobra.Command {
	return &cobra.Command{
		Use: "to-cdb DATABASE FILE", Short: "Write a flashdbm database as a cdb file", Long: toCdbHelp, Args: cobra.ExactArgs(2),
		RunE: withSource(began, exportCdb),
	}
}

func exportCdb(ctx context.Context, source, path string) (err error) {
	db, err := dbm.Open(source, &dbm.Options{ReadOnly: true, Events: func(dbm.Event) {}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists: give the name of a file that does not", path)
	}
	working := path + ".exporting"
	f, err := os.OpenFile(working, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(working) // else it is the rest of a failure that is reported
		}
	}()
	w := cdb.NewWriter(f)
	records := 0
	if err := db.ViewContext(ctx, func(tx *dbm.Tx) error {
		for key, value := range tx.All() {
			records++
			if err := w.Add(key, value); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return errors.New("interrupted")
	}
	for _, step := range []func() error{w.Finish, f.Sync, f.Close} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := os.Rename(working, path); err != nil {
		return err
	}
	if err := vfs.OS().SyncDir(path); err != nil {
		return err
	}
	fmt.Printf("%s: %d records\n", path, records)
	return nil
}
