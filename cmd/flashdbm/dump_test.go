package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDump(t *testing.T) {
	db := newPath(t)
	succeed(t, "put", db, `a\`, "1\n")
	succeed(t, "put", db, "--hex", "ff20", "")
	bytevalue := "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n 615c\n 310a\n ff20\n \nDATA=END\n"
	printed := "VERSION=3\nformat=print\ntype=btree\nHEADER=END\n a\\\\\n 1\\0a\n \\ff \n \nDATA=END\n"
	require.Equal(t, bytevalue, succeed(t, "dump", db))
	require.Equal(t, printed, succeed(t, "dump", db, "--print"))
	out := filepath.Join(t.TempDir(), "out")
	require.Empty(t, succeed(t, "dump", db, "--file", out))
	require.Equal(t, bytevalue, readFile(t, out))

	for _, dump := range []string{bytevalue, printed} {
		copied := newPath(t)
		require.Empty(t, succeedWith(t, dump, "load", copied))
		require.Equal(t, bytevalue, succeed(t, "dump", copied))
	}
}

func TestDumpOfNothing(t *testing.T) {
	db := newPath(t)
	succeedWith(t, "VERSION=3\nformat=print\nHEADER=END\nDATA=END\n", "load", db)
	require.Empty(t, succeed(t, "list", db))
	require.Equal(t, "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\nDATA=END\n", succeed(t, "dump", db))
}

// manyRecords returns a dump of several batches, with one value longer than all buffers.
func manyRecords() string {
	var b strings.Builder
	b.WriteString("VERSION=3\nformat=print\ntype=btree\nHEADER=END\n")
	for i := range 2*loadBatchRecords + 500 {
		fmt.Fprintf(&b, " key%06d\n %s\n", i, strings.Repeat("v", i%100))
	}
	fmt.Fprintf(&b, " long\n %s\nDATA=END\n", strings.Repeat(`x\00`, 3<<17))
	return b.String()
}

func TestLoadMany(t *testing.T) {
	t.Parallel()
	dump := manyRecords()
	file := writeFile(t, dump)
	for name, run := range map[string]func(db string) string{
		"pipe":   func(db string) string { return succeedWith(t, dump, "load", db, "--json") },
		"atomic": func(db string) string { return succeedWith(t, dump, "load", db, "--json", "--atomic") },
		"file":   func(db string) string { return succeed(t, "load", db, "--json", "--file", file) },
		"stdin": func(db string) string {
			// Standard input may be a file that is not at its beginning.
			skipped := writeFile(t, "skipped\n"+dump)
			input, err := os.Open(skipped)
			require.NoError(t, err)
			defer input.Close()
			_, err = input.Seek(int64(len("skipped\n")), 0)
			require.NoError(t, err)
			r := finish(t, command(t, "load", db, "--json"), input)
			require.Equal(t, exitDone, r.code, r.stderr)
			return r.stdout
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := newPath(t)
			require.Regexp(t, `^{"records":2501,"bytes":\d+}\n$`, run(db))
			require.Equal(t, dump, succeed(t, "dump", db, "--print"))
			run(db) // once more, over the existing records
			require.Equal(t, dump, succeed(t, "dump", db, "--print"))
		})
	}
}

// If a dump turns out to be damaged late, nothing is stored when it is a file or with --atomic. From a pipe, whole
// batches are stored, and the message says how many.
func TestLoadDamaged(t *testing.T) {
	whole := manyRecords()
	damaged := strings.Replace(whole, " key002400\n", " key\\zz\n", 1)
	says := []string{"line 4805 of the dump", "'z' after a backslash"}

	db := newPath(t)
	fail(t, exitError, says, "load", db, "--file", writeFile(t, damaged))
	require.NoFileExists(t, db)

	failWith(t, damaged, exitError, says, "load", db, "--atomic")
	require.Empty(t, succeed(t, "list", db))

	failWith(t, damaged, exitError, append(says, "the first 2,000 records are stored"), "load", db)
	require.Equal(t, 2000, strings.Count(succeed(t, "list", db), "\n"))

	succeedWith(t, whole, "load", db)
	require.Equal(t, whole, succeed(t, "dump", db, "--print"))
}

func TestLoadRefusesBeforeItCreates(t *testing.T) {
	db := newPath(t)
	failWith(t, "", exitError, []string{"ends without DATA=END"}, "load", db)
	failWith(t, "name,value\n", exitError, []string{"line 1", `begins with "VERSION=3"`}, "load", db)
	failWith(t, "VERSION=3\nformat=print\nduplicates=1\nHEADER=END\n", exitError, []string{"line 3", "duplicates=1"}, "load", db)
	fail(t, exitError, []string{"no such file"}, "load", db, "--file", db+".dump")
	require.NoFileExists(t, db)
}

// The files in testdata are the output of db_dump of Berkeley DB 5.3.28 and of
// mdb_dump of LMDB 0.9.24.
func TestLoadForeign(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		file string
		list string // or
		says string
	}{
		{file: "db53-bytevalue.dump", list: foreignRecords + "no value\t\"\"\n"},
		{file: "db53-print.dump", list: foreignRecords + "no value\t\"\"\n"},
		{file: "db53-hash.dump", list: foreignRecords + "no value\t\"\"\n"},
		{file: "lmdb09-bytevalue.dump", list: strings.TrimPrefix(foreignRecords, "\"\"\tempty key\n")},
		{file: "lmdb09-named.dump", list: "a\t1\n"},
		{file: "lmdb09-print.dump", says: "without -p"},
		{file: "db53-duplicates.dump", says: "duplicates=1"},
		{file: "lmdb09-duplicates.dump", says: "duplicates=1"},
		{file: "db53-several.dump", says: "one by one"},
		{file: "lmdb09-several.dump", says: "one by one"},
		{file: "db53-recno.dump", says: "record numbers"},
	} {
		t.Run(test.file, func(t *testing.T) {
			db := newPath(t)
			path := filepath.Join("testdata", test.file)
			if test.says != "" {
				fail(t, exitError, []string{test.says}, "load", db, "--file", path)
				require.NoFileExists(t, db)
				return
			}
			succeed(t, "load", db, "--file", path)
			require.Equal(t, test.list, succeed(t, "list", db, "--values"))
		})
	}
}

const foreignRecords = "\"\"\tempty key\n" +
	"\"\\x00\\xff\\n\"\t\"binary\\x00\"\n" +
	"back\\slash\ta\\bc\n" +
	"greeting\t\"good morning\\n\"\n"
