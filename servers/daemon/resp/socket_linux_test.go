package resp

import (
	"bytes"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pair returns the two ends of a TCP connection, the first one direct.
func pair(t *testing.T) (*socket, *net.TCPConn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	far, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { far.Close() })
	near, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { near.Close() })
	return direct(near).(*socket), far.(*net.TCPConn)
}

// TestSocket sends more than the buffers of a connection hold, in both directions: calls have to wait, and to continue
// where they stopped.
func TestSocket(t *testing.T) {
	near, far := pair(t)
	data := make([]byte, 16<<20)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	go func() {
		far.Write(data)
		far.CloseWrite()
	}()
	got, err := io.ReadAll(near)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))

	go func() {
		n, err := near.Write(data)
		assert.NoError(t, err)
		assert.Equal(t, len(data), n)
		near.Close()
	}()
	got, err = io.ReadAll(far)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}

// TestSocketEnds: deadlines and Close end calls that wait. A write returns how much of it was sent.
func TestSocketEnds(t *testing.T) {
	near, far := pair(t)
	require.NoError(t, near.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	_, err := near.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	require.NoError(t, near.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	n, err := near.Write(make([]byte, 64<<20)) // far does not read
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Less(t, n, 64<<20)
	got, err := io.ReadFull(far, make([]byte, n))
	require.NoError(t, err)
	require.Equal(t, n, got)

	require.NoError(t, near.SetDeadline(time.Time{}))
	ended := make(chan error)
	go func() {
		_, err := near.Read(make([]byte, 1))
		ended <- err
	}()
	near.Close()
	require.ErrorIs(t, <-ended, net.ErrClosed)

	near, far = pair(t)
	far.SetLinger(0)
	far.Close() // a reset
	for err = nil; err == nil; {
		_, err = near.Write([]byte("x"))
	}
	_, err = near.Read(make([]byte, 1))
	require.Error(t, err)
}
