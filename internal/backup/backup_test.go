package backup

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func stream(t testing.TB, content []byte) []byte {
	var out bytes.Buffer
	w := NewWriter(&out)
	for len(content) > 0 {
		n, err := w.Write(content[:min(1000, len(content))])
		require.NoError(t, err)
		content = content[n:]
	}
	require.NoError(t, w.End(End{}))
	return out.Bytes()
}

// TestCopy copies backups with lengths around the size of the buffer, through readers that return little at a time.
func TestCopy(t *testing.T) {
	for _, n := range []int{0, 1, MarkSize, copyBuffer - 1, copyBuffer, copyBuffer + 1, copyBuffer + MarkSize, 2*copyBuffer + 7, 3 * copyBuffer} {
		content := bytes.Repeat([]byte("0123456789abcde"), n/15+1)[:n]
		for _, r := range []io.Reader{
			bytes.NewReader(stream(t, content)), iotest.HalfReader(bytes.NewReader(stream(t, content))), iotest.DataErrReader(bytes.NewReader(stream(t, content))),
		} {
			var out bytes.Buffer
			require.NoError(t, copyErr(t.Context(), &out, r))
			require.True(t, bytes.Equal(content, out.Bytes()), "%d bytes", n)
		}
	}
}

func TestCopyRefuses(t *testing.T) {
	whole := stream(t, []byte("content"))
	for n := range len(whole) {
		require.ErrorIs(t, copyErr(t.Context(), io.Discard, bytes.NewReader(whole[:n])), ErrDamaged)
		b := bytes.Clone(whole)
		b[n] ^= 0x10
		require.ErrorIs(t, copyErr(t.Context(), io.Discard, bytes.NewReader(b)), ErrDamaged, "byte %d", n)
	}
	require.ErrorIs(t, copyErr(t.Context(), io.Discard, bytes.NewReader(append(bytes.Clone(whole), 0))), ErrDamaged)
}

// reseal gives a changed end mark the right checksum.
func reseal(b []byte) []byte {
	mark := b[len(b)-MarkSize:]
	binary.LittleEndian.PutUint32(mark[crcAt:], crc32.Checksum(mark[:crcAt], castagnoli))
	return b
}

func TestCopyComparesTheLength(t *testing.T) {
	b := stream(t, []byte("content"))
	b[len(b)-MarkSize+lengthAt]++
	require.ErrorIs(t, copyErr(t.Context(), io.Discard, bytes.NewReader(reseal(b))), ErrDamaged)
}

func TestCopyOfANewerVersion(t *testing.T) {
	b := stream(t, []byte("content"))
	b[len(b)-MarkSize+versionAt]++
	err := copyErr(t.Context(), io.Discard, bytes.NewReader(reseal(b)))
	require.ErrorContains(t, err, "use a newer flashdbm")
	require.NotErrorIs(t, err, ErrDamaged)
}

func TestCopyReturnsErrors(t *testing.T) {
	broken := errors.New("broken")
	require.ErrorIs(t, copyErr(t.Context(), io.Discard, iotest.ErrReader(broken)), broken)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, copyErr(ctx, io.Discard, bytes.NewReader(nil)), context.Canceled)
	_, w := io.Pipe()
	require.NoError(t, w.Close())
	require.Error(t, copyErr(t.Context(), w, bytes.NewReader(stream(t, make([]byte, 10)))))
	require.Error(t, NewWriter(w).End(End{}))
}

func copyErr(ctx context.Context, dst io.Writer, src io.Reader) error {
	_, err := Copy(ctx, dst, src)
	return err
}
