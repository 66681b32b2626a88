package dbm

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/formatdoc"
)

// TestFormatOfKeyspaces compares the keys in a file with keyspaces with the document.
func TestFormatOfKeyspaces(t *testing.T) {
	db := newDB(t, nil)
	require.NoError(t, db.Put([]byte("k"), nil))
	require.NoError(t, db.Put([]byte("\xffrest"), nil))
	require.NoError(t, db.CreateKeyspace("kept"))
	require.NoError(t, db.Keyspace("kept").Put([]byte("key"), nil))
	require.NoError(t, db.CreateKeyspace("lost"))
	db.drops.stop()
	require.NoError(t, db.DropKeyspace("lost"))
	var keys []string
	values := map[string]string{}
	require.NoError(t, db.View(func(tx *Tx) error {
		for k, v := range tx.whole().All() {
			text := describe(k)
			keys = append(keys, text)
			values[text] = string(v)
		}
		return nil
	}))
	want := formatdoc.Open(t).Table("Keys of keyspaces").Column("key")
	require.Len(t, want, 8)
	want = want[:7] // TestFormatOfExpiry has the other
	for i, key := range want {
		want[i] = strings.NewReplacer("`", "", "a key that does not begin with FF", "k", "rest", "rest", "name", "kept", "number, key", "01, key", "FF, number", "FF, 01").Replace(key)
	}
	want[6] = strings.Replace(want[6], "FF, 01", "FF, 02", 1)
	require.ElementsMatch(t, want, keys)
	require.Equal(t, "\x01", values[want[3]])
	require.Equal(t, "\xff\x01", values["FF FF n, kept"])
	require.Equal(t, "2", values["FF FF s"])
	require.Equal(t, "lost", values["FF FF d, FF, 02"])
	for n, prefix := range map[int64]string{1: "\xff\x01", 239: "\xff\xef", 240: "\xff\xf0\x00\x00\x00", 241: "\xff\xf0\x00\x00\x01", 240 + 1<<24: "\xff\xf1\x00\x00\x00"} {
		p, err := spacePrefix(n)
		require.NoError(t, err)
		require.Equal(t, prefix, string(p), "%d", n)
	}
}

// describe describes a key of the tree in the notation of the document.
func describe(k []byte) string {
	switch {
	case k[0] != spaceByte:
		return string(k)
	case k[1] == escapeByte:
		return "FF 00, " + string(k[2:])
	case k[1] != catalog:
		return fmt.Sprintf("FF, %02X, %s", k[1], k[2:])
	case k[2] == 0:
		text := "FF FF 00 flashdbm keyspaces "
		return text + fmt.Sprintf("% X", k[len(k)-8:])
	case k[2] == catalogName:
		return "FF FF n, " + string(k[3:])
	case k[2] == catalogDropped:
		return fmt.Sprintf("FF FF d, FF, %02X", k[4:])
	}
	return "FF FF " + string(k[2:])
}

// TestFormatOfExpiry compares how a record that expires is stored in the tree with the document.
func TestFormatOfExpiry(t *testing.T) {
	db, clock := newExpiring(t, nil)
	clock.at.Store(0x010203040500)
	require.NoError(t, db.PutTTL([]byte("\xffk"), []byte("value"), 6*time.Millisecond))
	table := formatdoc.Open(t).Table("Records that expire")
	offsets, sizes := table.Numbers("timed value", "offset"), table.Map("timed value", "size")
	require.Equal(t, map[string]uint64{"stamp": 0, "time": stampBytes, "value": stampedBytes}, offsets)
	require.Equal(t, map[string]string{"stamp": fmt.Sprint(stampBytes), "time": fmt.Sprint(timeBytes), "value": ""}, sizes)
	stamp := db.expiry.stamp.Load()
	require.NoError(t, db.View(func(tx *Tx) error {
		for key, want := range map[string]string{
			string(spaceMark): "\x02" + string(binary.BigEndian.AppendUint64(nil, stamp)),
			"\xff\x00k":       string(binary.BigEndian.AppendUint64(nil, stamp)) + "\x01\x02\x03\x04\x05\x06value",
			"\xff\xfft\x01\x02\x03\x04\x05\x06\xff\x00k": "",
		} {
			got, err := tx.whole().Get([]byte(key))
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
		return nil
	}))
	require.Equal(t, "FF FF `t`, time, key", formatdoc.Open(t).Table("Keys of keyspaces").Column("key")[7])
	require.EqualValues(t, 65535, mostTimedKey)
}
