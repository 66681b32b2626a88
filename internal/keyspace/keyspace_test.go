package keyspace

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDefault: keys can be stored and read back unchanged, keep their order, and are all below End. Mark is not
// below End.
func TestDefault(t *testing.T) {
	var last []byte
	for _, key := range []string{"", "\x00", "a", "\xfe\xff", "\xff", "\xff\x00", "\xff\x00\x00", "\xff\x01", "\xff\xff", string(Mark), "\xff\xff\xff"} {
		stored := In(nil, []byte(key))
		require.Equal(t, key, string(Out(stored)))
		require.True(t, last == nil || bytes.Compare(last, stored) < 0, "%x before %x", last, stored)
		require.Negative(t, bytes.Compare(stored, End), "%x", stored)
		last = stored
	}
	require.Positive(t, bytes.Compare(Mark, End))
}
