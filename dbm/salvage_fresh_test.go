package dbm

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/backup"
	"flashdbm/internal/salvage"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestSalvageFresh: nothing is missing from sound files that end in the segment in which their log ends, or with that
// segment: new files, backups and restored files. The header of such a segment names a successor that the file never
// had. Nor is anything missing once such files have been written to: the end mark of a backup that is opened as a
// database is then where the header of the next segment comes.
func TestSalvageFresh(t *testing.T) {
	inTurn(t)
	all := func(file []byte, model map[string]string, what string) {
		t.Helper()
		records, result, err := salvageBytes(t, file, salvage.Options{Missing: func(m salvage.Missing) { t.Errorf("%s: missing: %v", what, m.Err) }})
		require.NoError(t, err, what)
		require.Zero(t, result.Dropped, what)
		require.Len(t, records, len(model), what)
		for key, r := range records {
			require.True(t, string(r.value) == model[key], "%s: %.20q", what, key)
		}
	}
	image := func(mem *vfs.Mem) []byte {
		copied := mem.Clone()
		defer copied.Release()
		return fileBytes(t, copied)
	}
	// write opens a file, puts records one by one, and closes it. Each state that a kill would leave is salvaged.
	write := func(file []byte, puts int, model map[string]string, what string) {
		t.Helper()
		mem := memoryFile(t, file)
		defer mem.Release()
		db, err := open(mem, salvagePath, nil)
		require.NoError(t, err, what)
		all(image(mem), model, what+", opened")
		for i := range puts {
			key, value := fmt.Sprintf("put %d", i), fmt.Sprintf("value %d", i)
			require.NoError(t, db.Put([]byte(key), []byte(value)))
			model[key] = value
			all(image(mem), model, fmt.Sprintf("%s, %d put", what, i+1))
		}
		require.NoError(t, db.Close())
		all(fileBytes(t, mem), model, what+", closed")
	}
	write(nil, 40, map[string]string{}, "new")

	for _, test := range []struct {
		what                  string
		records, bytes, large int
	}{
		{"empty", 0, 0, 0},
		{"small", 100, 20, 0},
		{"less than a segment", 6000, 30, 0},
		{"two segments", 9000, 150, 0},
		{"large value", 1, 20, 3_000_000},
		{"large value and more than a segment", 9000, 150, 1_500_000},
	} {
		mem := vfs.NewMem(1 << 30)
		mem.WithoutCrashes()
		db, err := open(mem, salvagePath, &Options{Durability: Buffered})
		require.NoError(t, err)
		model := map[string]string{}
		require.NoError(t, db.Update(func(tx *Tx) error {
			for i := range test.records + 1 {
				key, value := fmt.Sprintf("%06d", i), bytes.Repeat([]byte{byte(i)}, test.bytes)
				if i == test.records {
					if value = bytes.Repeat([]byte("large"), test.large/5); test.large == 0 {
						continue
					}
				}
				model[key] = string(value)
				if err := tx.Put([]byte(key), value); err != nil {
					return err
				}
			}
			return nil
		}))
		var stream bytes.Buffer
		_, err = db.Backup(t.Context(), &stream)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		mem.Release()
		copied := stream.Bytes()
		restored := copied[:len(copied)-backup.MarkSize]
		all(copied, model, test.what+", backup")
		all(restored, model, test.what+", restored")
		write(copied, 0, model, test.what+", backup")
		write(restored, 3, maps.Clone(model), test.what+", restored")
		write(copied, 3, model, test.what+", backup")
	}
}

// TestSalvageCutSegments: a file that was not closed is cut where a segment ends. Either the log did not go on behind
// the cut, or salvage says that commits may be missing. A group that does not fit the rest of a segment leaves pages
// there that look like the free end of a new file.
func TestSalvageCutSegments(t *testing.T) {
	inTurn(t)
	for _, durability := range []Durability{Durable, WriteThrough} {
		mem, db := openEndSegments(t, durability)
		model := map[string]string{}
		for version := range 25 {
			key := fmt.Sprintf("%02d", version)
			model[key] = string(bytes.Repeat([]byte{byte(version)}, 4000+version%3*10_000))
			require.NoError(t, db.Put([]byte(key), []byte(model[key])))
			copied := mem.Clone()
			image := fileBytes(t, copied)
			copied.Release()
			for cut := endSegmentPages * logstore.PageSize; cut < len(image); cut += endSegmentPages * logstore.PageSize {
				salvagesAll(t, image[:cut], model, fmt.Sprintf("durability %d, version %d, %d bytes", durability, version, cut))
			}
		}
		require.NoError(t, db.Close())
	}
}
