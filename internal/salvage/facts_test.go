package salvage

import (
	"bytes"
	"fmt"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"

	"github.com/stretchr/testify/require"
)

// TestFirstRecord cuts streams of redo records at any byte and compares the records found after the cut with the
// actual ones. It must find no others, even though a value itself consists of records.
func TestFirstRecord(t *testing.T) {
	var crafted []byte
	for i := range 100 {
		crafted = redo.Append(crafted, &btree.Op{Key: fmt.Appendf(nil, "5000 crafted %03d", i), Value: []byte("x")})
	}
	var stream []byte
	genuine := map[string]bool{}
	for i := range 60 {
		op := btree.Op{Key: fmt.Appendf(nil, "%04d", i*100), Value: bytes.Repeat([]byte{byte(i)}, i*7%120)}
		if i%10 == 5 {
			op.Value = crafted[:1900]
		}
		genuine[string(op.Key)] = true
		stream = redo.Append(stream, &op)
	}
	found := 0
	for cut := 1; cut < len(stream)-1; cut += 3 {
		rest := stream[cut:]
		skip, certain := firstRecord(rest)
		_ = redo.ReadAt(rest[skip:], func(op btree.Op, from, _ int, _ bool) {
			if from+skip < certain {
				return
			}
			found++
			require.True(t, genuine[string(op.Key)], "cut at %d: %q", cut, op.Key)
		}, nil)
	}
	require.Greater(t, found, 1000)
}
