package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"flashdbm/dbm"

	"github.com/stretchr/testify/require"
)

// smallSource makes a directory of files for demo: empty ones, one of a megabyte, and enough others for several
// transactions.
func smallSource(t *testing.T) string {
	root := t.TempDir()
	write := func(name, content string) {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	write("VERSION", "one")
	write("empty", "")
	write("bin/tool", strings.Repeat("\x00\xff\n", 1<<20/3))
	for i := range 250 {
		write("src/many/"+formatCount(int64(i)), strings.Repeat("x", i*10))
	}
	write("src/many/deep/er", "")
	write("src/manyother", "")
	return root
}

func TestDemo(t *testing.T) {
	t.Parallel()
	dir, source := t.TempDir(), smallSource(t)
	out := succeed(t, "demo", "--dir", dir, "--source", source, "--kills", "2", "--transfers", "20")
	require.Contains(t, out, "stored 255 files of "+source)
	require.Contains(t, out, `251 records begin with "file/src/many/"`)
	require.Contains(t, out, "160 transfers by 8 writers")
	require.Contains(t, out, "kill 2: ")
	require.Contains(t, out, "pages/commit")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestDemoJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := execute(t, "", "demo", "--dir", dir, "--source", smallSource(t), "--kills", "1", "--transfers", "1", "--json", "--keep")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Contains(t, r.stderr, "the database is kept: "+dir)
	var rows []demoRow
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &rows))
	var phases []string
	for _, row := range rows {
		phases = append(phases, row.Phase)
		require.Positive(t, row.Records)
		require.Positive(t, row.FileSize)
		require.Positive(t, row.OpenTime)
	}
	require.Equal(t, []string{"store", "verify", "transfer", "kill", "verify again"}, phases)
	require.EqualValues(t, 255, rows[0].Records)
	require.Positive(t, rows[0].Syncs)
	require.Positive(t, rows[0].Pages)
	kept, err := filepath.Glob(filepath.Join(dir, "*", "demo.fdbm"))
	require.NoError(t, err)
	require.Len(t, kept, 1)
	checkDatabase(t, kept[0])
}

func TestDemoCannotStart(t *testing.T) {
	empty := t.TempDir()
	fail(t, exitError, []string{"no files in", "--source"}, "demo", "--dir", empty, "--source", t.TempDir())
	fail(t, exitError, []string{"missing"}, "demo", "--dir", empty, "--source", filepath.Join(empty, "missing"))
	fail(t, exitError, []string{"missing"}, "demo", "--dir", filepath.Join(empty, "missing"), "--source", smallSource(t))
	left, err := os.ReadDir(empty)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestSourceFilesFollowsLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege")
	}
	root, elsewhere := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "b"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "a.go"), nil, 0o600))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(root, "a")))
	require.NoError(t, os.Symlink(root, filepath.Join(elsewhere, "back")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(root, "c")))
	files, err := sourceFiles(root)
	require.NoError(t, err)
	var keys []string
	for _, file := range files {
		keys = append(keys, file.key)
	}
	require.Equal(t, []string{"a.go", "a/b"}, keys)
}

// The proofs of demo must fail if something is wrong.
func TestDemoFindsMismatches(t *testing.T) {
	t.Parallel()
	source := smallSource(t)
	files, err := sourceFiles(source)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		spoil func(tx *dbm.Tx) error
		prove func(d *demo, tx *dbm.Tx) error
		says  string
	}{
		"other content": {
			func(tx *dbm.Tx) error { return tx.Put([]byte("file/VERSION"), []byte("two")) },
			func(d *demo, tx *dbm.Tx) error { return d.verifyFiles(t.Context(), tx, &demoRow{}, files) },
			"SHA-256",
		},
		"missing file": {
			func(tx *dbm.Tx) error { return tx.Delete([]byte("file/VERSION")) },
			func(d *demo, tx *dbm.Tx) error { return d.verifyFiles(t.Context(), tx, &demoRow{}, files) },
			"file/VERSION",
		},
		"one too many": {
			func(tx *dbm.Tx) error { return tx.Put([]byte("file/more"), nil) },
			func(d *demo, tx *dbm.Tx) error { return d.countFiles(tx, files) },
			"256 records",
		},
		"one in another directory": {
			func(tx *dbm.Tx) error {
				if err := tx.Delete([]byte("file/VERSION")); err != nil {
					return err
				}
				return tx.Put([]byte("file/src/many/VERSION"), nil)
			},
			func(d *demo, tx *dbm.Tx) error { return d.countFiles(tx, files) },
			"252 records",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &program{ctx: t.Context(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
			d := &demo{program: p, source: source, path: newPath(t), out: &strings.Builder{}}
			_, err := d.store(t.Context())
			require.NoError(t, err)
			require.NoError(t, d.verify(t.Context(), "verify", files))
			spoilAndProve(t, d.path, test.spoil, func(tx *dbm.Tx) error { return test.prove(d, tx) }, test.says)
		})
	}
}

func spoilAndProve(t *testing.T, path string, spoil, prove func(tx *dbm.Tx) error, says string) {
	t.Helper()
	db, err := dbm.Open(path, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.Update(spoil))
	require.ErrorContains(t, db.View(prove), says)
}
