package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"flashdbm/dbm"

	"github.com/stretchr/testify/require"
)

// watchLines runs stat --watch with a pipe until it has printed the given number of lines, then interrupts it and
// returns the lines. It calls between after the first line.
func watchLines(t *testing.T, lines int, between func(), args ...string) []string {
	cmd := command(t, args...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	var got []string
	scan := bufio.NewScanner(out)
	for len(got) < lines && scan.Scan() {
		if got = append(got, scan.Text()); len(got) == 1 {
			between()
		}
	}
	require.Len(t, got, lines, stderr.String())
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for scan.Scan() {
	}
	require.NoError(t, cmd.Wait(), "an interrupt is its end: %s", stderr.String())
	require.Empty(t, stderr.String())
	return got
}

// TestWatchAPipe: stat --watch prints a line at each interval to a pipe, while another process has the database
// open and writes.
func TestWatchAPipe(t *testing.T) {
	path := newPath(t)
	db, err := dbm.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("a"), []byte("1")))
	lines := watchLines(t, headEvery+3, func() { require.NoError(t, db.Put([]byte("b"), []byte("2"))) }, "stat", path, "--watch=10ms")
	require.NoError(t, db.Close())
	require.Equal(t, []string{"time", "records", "per", "second", "file", "live", "free", "groups/s"}, strings.Fields(lines[0]))
	require.Regexp(t, `^\d\d:\d\d:\d\d +[12] +- +\d+.*B +-$`, lines[1])
	require.Regexp(t, `^\d\d:\d\d:\d\d +2 +-?[\d,]+ +`, lines[headEvery])
	require.Equal(t, lines[0], lines[headEvery+1])
	require.Len(t, lines[headEvery], len(lines[0]))
}

func TestWatchInJSON(t *testing.T) {
	path := newPath(t)
	succeed(t, "put", path, "a", "1")
	for _, line := range watchLines(t, 3, func() {}, "stat", path, "--watch=10ms", "--json") {
		var w watched
		require.NoError(t, json.Unmarshal([]byte(line), &w))
		require.EqualValues(t, 1, w.Records)
		require.Positive(t, w.File)
		require.Positive(t, w.Group)
	}
}

// TestWatchOfKeyspaces: as many records are shown as stat tells, whichever keyspace they are in.
func TestWatchOfKeyspaces(t *testing.T) {
	path := newPath(t)
	db, err := dbm.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.CreateKeyspace("a"))
	for i := range 100 {
		require.NoError(t, db.Keyspace("a").Put([]byte{byte(i)}, nil))
	}
	require.NoError(t, db.Close())
	stats := succeed(t, "stat", path, "--json")
	for _, line := range watchLines(t, 1, func() {}, "stat", path, "--watch=10ms", "--json") {
		var w, all watched
		require.NoError(t, json.Unmarshal([]byte(line), &w))
		require.NoError(t, json.Unmarshal([]byte(stats), &all))
		require.Greater(t, w.Records, int64(100), "with those of the catalog")
		require.Equal(t, all.Records, w.Records)
	}
}

func TestWatchOfNothing(t *testing.T) {
	fail(t, exitError, []string{"there is no database"}, "stat", newPath(t), "--watch")
}

// TestScreenFits: the screen is never wider or longer than the terminal, however large the file and however small
// the terminal.
func TestScreenFits(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, segments := range []int{0, 1, 79, 80, 81, 5000, 100_000} {
		for _, size := range [][2]int{{80, 24}, {20, 5}, {1, 1}, {200, 60}} {
			v := &screenView{path: "app.fdbm", interval: time.Second}
			v.first = watched{At: at, Records: 5, File: 1 << 20}
			v.last = watched{At: at.Add(time.Second), Records: 10, File: 3 << 20}
			now := watched{At: at.Add(3 * time.Second), Records: 4, File: 3 << 20, segments: pictureOf(segments).segments}
			page := v.page(now, size[0], size[1])
			if size[1] >= 9 {
				require.LessOrEqual(t, len(page), size[1])
				require.Regexp(t, `records +4 +-3 +-1`, page[3])
				require.Regexp(t, `file +3\.0 MiB +0 +\+2\.0 MiB`, page[5])
			}
			for i, line := range page {
				require.LessOrEqual(t, len(cutTo(line, size[0])), size[0], "line %d", i)
			}
			if size[1] < len(page) {
				require.Less(t, size[1], 9, "nothing but the numbers does not fit")
			}
		}
	}
}
