package dbm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/formatdoc"
)

// TestFormatOfKeyspaces compares the keys that a file with keyspaces has with the document.
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
	require.Len(t, want, 7)
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

// describe says what a key of the tree is, in the way of the document.
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
