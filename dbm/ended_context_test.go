package dbm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEndedContext: a call with a context that has ended returns the context's error, also where it has nothing to do: in
// an empty database, and of a token since which nothing has changed.
func TestEndedContext(t *testing.T) {
	db := newWith(t, openUnsynced, nil)
	token, err := db.Backup(t.Context(), io.Discard)
	require.NoError(t, err)
	var full, increment bytes.Buffer
	_, err = db.Backup(t.Context(), &full)
	require.NoError(t, err)
	_, err = db.BackupSince(t.Context(), token, &increment)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"Backup":      func() error { return backupErr(db, ctx, io.Discard) },
		"BackupSince": func() error { _, err := db.BackupSince(ctx, token, io.Discard); return err },
		"ApplyBackup": func() error { _, err := db.ApplyBackup(ctx, token, bytes.NewReader(increment.Bytes())); return err },
		"Restore":     func() error { return restoreErr(ctx, filepath.Join(t.TempDir(), "db"), bytes.NewReader(full.Bytes())) },
		"Follow": func() error {
			return db.Follow(ctx, token, time.Millisecond, func(Token, io.Reader) error { return errors.New("called") })
		},
		"Check":         func() error { return db.Check(ctx) },
		"CheckAll":      func() error { return db.CheckAll(ctx, func(Damage) {}) },
		"Compact":       func() error { return db.Compact(ctx, nil) },
		"FinishDrops":   func() error { return db.FinishDrops(ctx) },
		"DeleteExpired": func() error { _, err := db.DeleteExpired(ctx); return err },
		"Load":          func() error { return db.Load(ctx, func(func(key, value []byte) bool) {}, LoadOptions{}) },
		"ViewContext":   func() error { return db.ViewContext(ctx, func(*Tx) error { return nil }) },
		"UpdateContext": func() error { return db.UpdateContext(ctx, TxOptions{}, func(*Tx) error { return nil }) },
	} {
		assert.ErrorIs(t, call(), context.Canceled, name)
	}
}
