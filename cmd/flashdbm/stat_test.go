package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"flashdbm/dbm"

	"github.com/stretchr/testify/require"
)

func nanoseconds(n int64) time.Duration { return time.Duration(n) }

func TestStat(t *testing.T) {
	db := newPath(t)
	succeed(t, "put", db, "a", "1")
	succeed(t, "put", db, "b", "2")
	require.Regexp(t, `(?m)^records +2$`, succeed(t, "stat", db))
	var stats dbm.Stats
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "stat", db, "--json")), &stats))
	require.EqualValues(t, 2, stats.Records)
	require.Positive(t, stats.FileBytes)
}

func TestPrintSegments(t *testing.T) {
	segment := func(kind string, live int64) dbm.Segment { return dbm.Segment{Kind: kind, Bytes: 1000, Live: live} }
	var b strings.Builder
	require.NoError(t, printSegments(&b, []dbm.Segment{
		segment(dbm.SegmentLog, 1000), segment(dbm.SegmentLog, 0), segment(dbm.SegmentValues, 450), segment(dbm.SegmentFree, 0),
		segment(dbm.SegmentTail, 10), segment(dbm.SegmentNext, 0), segment(dbm.SegmentAbsent, 0),
	}))
	require.Equal(t, "segments, 1 a character:\n904.>._\n", b.String())
	b.Reset()
	require.NoError(t, printSegments(&b, pictureOf(100_000).segments))
	require.Contains(t, b.String(), "98 a character")
	require.Equal(t, segmentLines+1, strings.Count(b.String(), "\n"))
	require.Equal(t, 1, strings.Count(b.String(), ">"))
}

func TestPrintFields(t *testing.T) {
	type inner struct{ Groups uint64 }
	var out bytes.Buffer
	printFields(&out, "", reflect.ValueOf(struct {
		Records   int64
		FileBytes int64
		PutBytes  uint64
		Failed    string
		OldestAge time.Duration
		Clean     bool
		Recovered inner
		hidden    int
	}{1234567, 2 << 20, 3 << 10, "", 1500 * time.Millisecond, true, inner{42}, 7}))
	require.Equal(t, "records\t1,234,567\nfile bytes\t2.0 MiB\nput bytes\t3.0 KiB\noldest age\t1.5s\nclean\ttrue\nrecovered groups\t42\n", out.String())
}

func TestCheck(t *testing.T) {
	db := newPath(t)
	succeed(t, "put", db, "a", "1")
	require.Equal(t, db+": no problems in 1 record\n", succeed(t, "check", db))
	require.JSONEq(t, `{"ok": true, "records": 1, "problems": [], "damage": []}`, succeed(t, "check", db, "--json"))
}

func TestCheckDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "damaged.fdbm")
	const marker = "a value that is easy to find in the file"
	succeed(t, "put", path, "a", marker)
	content := readFile(t, path)
	at := strings.LastIndex(content, marker)
	require.Positive(t, at)
	damaged := content[:at] + "A" + content[at+1:]
	require.NoError(t, os.WriteFile(path, []byte(damaged), 0o600))

	r := execute(t, "", "check", path)
	require.Equal(t, exitError, r.code)
	require.Empty(t, r.stdout)
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	require.GreaterOrEqual(t, len(lines), 2)
	require.Equal(t, fmt.Sprintf("flashdbm: %s is damaged, problems found: %d; restore a backup, or see \"flashdbm salvage --help\"", path, len(lines)-1), lines[len(lines)-1])

	r = execute(t, "", "check", path, "--json")
	require.Equal(t, exitError, r.code)
	var result checkResult
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &result))
	require.False(t, result.OK)
	require.NotEmpty(t, result.Problems)

	fail(t, exitError, []string{"the file is damaged", "flashdbm check"}, "get", path, "a")
}

// An empty file counts as an empty database. Reading it does not write to it.
func TestStatOfEmptyFile(t *testing.T) {
	db := writeFile(t, "")
	require.NotContains(t, succeed(t, "stat", db), "true")
	require.Contains(t, succeed(t, "stat", db), "records")
	require.Empty(t, readFile(t, db))
}
