package shm

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

// TestCloseClears: a peer that has mapped a region reads zeros after the region is closed, and never data that is
// allocated there later.
func TestCloseClears(t *testing.T) {
	d, err := Open()
	require.NoError(t, err)
	defer d.Close()
	const size = 1<<16 + 5
	r, err := d.regions.Alloc(8, 0)
	require.NoError(t, err)
	assert.Nil(t, r.With(), "memory that no peer reaches is no memfd")
	shows, err := d.Alloc(size, fabric.RemoteRead)
	require.NoError(t, err)
	fd, err := d.regions.Find(shows.Key()).With().(*shared).mem.share(false)
	require.NoError(t, err)
	seen, err := mapShared(fd, size, false)
	require.NoError(t, err)
	defer unmap(seen)
	for i := range shows.Bytes() {
		shows.Bytes()[i] = 1
	}
	require.EqualValues(t, 1, seen[size-1])
	require.NoError(t, shows.Close())
	later, err := d.Alloc(size, fabric.RemoteRead)
	require.NoError(t, err)
	for i := range later.Bytes() {
		later.Bytes()[i] = 2
	}
	for i, b := range seen {
		require.Zero(t, b, "at %d", i)
	}
}

// TestSharedReadOnly: a peer without the right to write gets no descriptor that could be mapped for it.
func TestSharedReadOnly(t *testing.T) {
	mem, err := newMemfd("test", 4096)
	require.NoError(t, err)
	defer mem.free()
	fd, err := mem.share(false)
	require.NoError(t, err)
	_, err = mapShared(fd, 4096, true)
	assert.ErrorIs(t, err, unix.EACCES)
	fd, err = mem.share(true)
	require.NoError(t, err)
	b, err := mapShared(fd, 4096, true)
	require.NoError(t, err)
	unmap(b)
}

// TestUnsealedMemory: a peer's memory is not mapped if it can be truncated, or is shorter than the peer says, because
// an access beyond its end would end the process.
func TestUnsealedMemory(t *testing.T) {
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, 4096))
	_, err = mapShared(fd, 4096, true)
	assert.Error(t, err)
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(4096))
	fd, err = unix.Dup(int(f.Fd()))
	require.NoError(t, err)
	_, err = mapShared(fd, 4096, true)
	assert.Error(t, err)
	mem, err := newMemfd("test", 4096)
	require.NoError(t, err)
	defer mem.free()
	assert.ErrorIs(t, unix.Ftruncate(mem.fd, 0), unix.EPERM)
	assert.ErrorIs(t, unix.Ftruncate(mem.fd, 8192), unix.EPERM)
	for _, n := range []int{0, -1, 4097, 1 << 40} {
		fd, err := mem.share(false)
		require.NoError(t, err)
		_, err = mapShared(fd, n, false)
		assert.Error(t, err, "%d bytes", n)
	}
}

// TestFenceWords: the word of a closed region is given to another region. Fencing the closed region again does not
// change the word.
func TestFenceWords(t *testing.T) {
	d, err := Open()
	require.NoError(t, err)
	defer d.Close()
	for range 10 {
		a, err := d.Alloc(8, fabric.RemoteRead)
		require.NoError(t, err)
		require.NoError(t, a.Close())
		b, err := d.Alloc(8, fabric.RemoteRead)
		require.NoError(t, err)
		require.Equal(t, 1, d.fences.used, "words are used again")
		require.NoError(t, a.Fence())
		v := window{key: b.Key(), at: 0}
		require.False(t, v.fenced(d.fences.mem.b), "another region's Fence has fenced it")
		old := window{key: a.Key(), at: 0}
		require.True(t, old.fenced(d.fences.mem.b), "a closed region is open again")
		require.NoError(t, b.Close())
	}
}

// TestDeadSocket: the socket of a process that has died is replaced; anything else at that path is not.
func TestDeadSocket(t *testing.T) {
	d, err := Open()
	require.NoError(t, err)
	defer d.Close()
	addr := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: addr, Net: "unixpacket"})
	require.NoError(t, err)
	dead.SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())
	l, err := d.Listen(addr)
	require.NoError(t, err)
	st, err := os.Stat(addr)
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, st.Mode().Perm())
	require.NoError(t, l.Close())
	require.NoError(t, os.WriteFile(addr, []byte("a file"), 0o600))
	_, err = d.Listen(addr)
	require.Error(t, err)
	b, err := os.ReadFile(addr)
	require.NoError(t, err)
	assert.Equal(t, "a file", string(b))
}

// TestHostilePeer: whatever a peer sends, only its own connection ends.
func TestHostilePeer(t *testing.T) {
	d, err := Open()
	require.NoError(t, err)
	defer d.Close()
	addr := filepath.Join(t.TempDir(), "s")
	l, err := d.Listen(addr)
	require.NoError(t, err)
	q, err := d.NewQueue(4096)
	require.NoError(t, err)
	options := fabric.EndpointOptions{Send: q, Recv: q}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends := make(chan fabric.Endpoint, 1000)
	go func() {
		for {
			in, err := l.Accept(ctx)
			if err != nil {
				return
			}
			if e, err := in.Accept(options, nil); err == nil {
				ends <- e
			}
		}
	}()
	shown, err := d.Alloc(4096, fabric.RemoteRead|fabric.RemoteWrite)
	require.NoError(t, err)
	hostile, err := Open()
	require.NoError(t, err)
	defer hostile.Close()
	hq, err := hostile.NewQueue(8)
	require.NoError(t, err)
	rounds := 300
	if testing.Short() {
		rounds = 100
	}
	kinds := []byte{packetHello, packetAnswer, packetReject, packetMap, packetMapped, packetRefuse, packetSend, packetTaken, packetLarge, 0, 255}
	ended := 0
	for i := range rounds {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: addr, Net: "unixpacket"})
		require.NoError(t, err)
		polite := i%4 != 0
		if polite {
			require.NoError(t, greet(conn, packetHello, hostile, hq.(*queue), nil))
			// If a socket is closed with unread data, the other end cannot read what was sent to it before. So
			// everything is read first.
			_, fds, err := receive(conn, make([]byte, maxPacket))
			require.NoError(t, err)
			closeAll(fds)
		}
		for range 1 + rand.IntN(4) {
			packet := make([]byte, 1+rand.IntN(40))
			for k := range packet {
				packet[k] = byte(rand.Uint32())
			}
			packet[0] = kinds[rand.IntN(len(kinds))]
			several := rand.IntN(3)
			if n := map[byte]int{packetMap: 17, packetMapped: 26, packetRefuse: 9}[packet[0]]; n > 0 && rand.IntN(2) == 0 {
				// A packet of a valid form, with small numbers, that nobody has requested.
				packet = append(packet[:1], make([]byte, n-1)...)
				for at := 1; at < n; at += 8 {
					packet[at] = byte(rand.IntN(4))
				}
				several = descriptors[packet[0]]
			}
			var fds []int
			for range several {
				fds = append(fds, hostile.fences.fd)
			}
			send(conn, packet, fds...)
		}
		conn.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		for {
			_, fds, err := receive(conn, make([]byte, maxPacket))
			closeAll(fds)
			if err != nil {
				break
			}
		}
		conn.Close()
		if polite {
			e := <-ends
			<-e.Done()
			e.Close()
			ended++
		}
	}
	require.Greater(t, ended, rounds/2)
	other, err := Open()
	require.NoError(t, err)
	defer other.Close()
	oq, err := other.NewQueue(8)
	require.NoError(t, err)
	local, err := other.Alloc(8, 0)
	require.NoError(t, err)
	e, _, err := other.Dial(ctx, addr, nil, fabric.EndpointOptions{Send: oq, Recv: oq})
	require.NoError(t, err)
	words.Store(shown.Bytes(), 0, 42)
	_, err = e.Post([]fabric.WR{{Op: fabric.Read, Flags: fabric.Signal, Local: local, LLen: 8, Remote: shown.Key()}})
	require.NoError(t, err)
	require.NoError(t, oq.Wait(ctx, 100))
	assert.EqualValues(t, 42, words.Load(local.Bytes(), 0))
	descriptors, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	assert.Less(t, len(descriptors), 100, "descriptors leak")
}
