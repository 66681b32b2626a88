package tcp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/greeting"
	"flashdbm/servers/fabric/words"
)

// target is an owner that accepts every peer.
type target struct {
	d    *Domain
	addr string
	key  fabric.Key
	ends chan fabric.Endpoint
}

func newTarget(t *testing.T, o Options) *target {
	d := Open(o)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	l, err := d.Listen("127.0.0.1:0")
	require.NoError(t, err)
	q, err := d.NewQueue(4096)
	require.NoError(t, err)
	shown, err := d.Alloc(1<<16, fabric.RemoteRead|fabric.RemoteWrite)
	require.NoError(t, err)
	words.Store(shown.Bytes(), 0, 42)
	ends := make(chan fabric.Endpoint, 10_000)
	go func() {
		for {
			in, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			if e, err := in.Accept(fabric.EndpointOptions{Send: q, Recv: q}, nil); err == nil {
				ends <- e
			}
		}
	}()
	return &target{d, l.Addr(), shown.Key(), ends}
}

// readsWord makes one Read by a new domain.
func (x *target) readsWord(t *testing.T, o Options) error {
	t.Helper()
	d := Open(o)
	defer d.Close()
	q, err := d.NewQueue(8)
	require.NoError(t, err)
	local, err := d.Alloc(8, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	e, _, err := d.Dial(ctx, x.addr, nil, fabric.EndpointOptions{Send: q, Recv: q})
	if err != nil {
		return err
	}
	_, err = e.Post([]fabric.WR{{Op: fabric.Read, Flags: fabric.Signal, Local: local, LLen: 8, Remote: x.key}})
	require.NoError(t, err)
	require.NoError(t, q.Wait(ctx, 100))
	var wc [1]fabric.WC
	require.Equal(t, 1, q.Poll(wc[:]))
	require.NoError(t, wc[0].Err)
	require.EqualValues(t, 42, words.Load(local.Bytes(), 0))
	return nil
}

// TestHostilePeer: whatever a peer sends, only its own connection ends, and the connection holds no more memory than
// it may.
func TestHostilePeer(t *testing.T) {
	x := newTarget(t, Options{})
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	kinds := []byte{frameRead, frameWrite, frameSend, frameData, frameDone, 0, 255}
	for i := range rounds {
		conn, err := net.Dial("tcp", x.addr)
		require.NoError(t, err)
		if i%4 != 0 {
			require.NoError(t, protocol.Write(conn, greeting.Greeting{Nonce: rand.Uint64(), Depth: 16}))
		}
		for range 1 + rand.IntN(4) {
			frame := make([]byte, 1+rand.IntN(80))
			for k := range frame {
				frame[k] = byte(rand.Uint32())
			}
			frame[0] = kinds[rand.IntN(len(kinds))]
			if rand.IntN(2) == 0 && len(frame) > 40 { // a valid key, and any place
				b := frame[1:1]
				if frame[0] == frameWrite {
					b = frame[2:2]
				}
				appendPlace(b, x.key, rand.Uint64()>>rand.IntN(64), rand.Uint64()>>(32+rand.IntN(32)))
			}
			conn.Write(frame)
		}
		conn.Close()
	}
	words.Store(x.d.regions.Find(x.key).Bytes(), 0, 42) // with a valid key, they may have written
	for range rounds / 2 {
		select {
		case e := <-x.ends:
			<-e.Done()
			e.Close()
		case <-time.After(time.Second):
		}
	}
	require.NoError(t, x.readsWord(t, Options{}))
}

// TestFlood: a peer that requests Reads and does not read the answers is disconnected once it has more requests under
// way than it has announced.
func TestFlood(t *testing.T) {
	x := newTarget(t, Options{})
	conn, err := net.Dial("tcp", x.addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, protocol.Write(conn, greeting.Greeting{Nonce: 1, Depth: 16}))
	read := appendPlace([]byte{frameRead}, x.key, 0, 1<<16)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
	for {
		if _, err := conn.Write(read); err != nil {
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			break
		}
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(64<<20))
	require.NoError(t, x.readsWord(t, Options{}))
}

// TestGreetings: a connection is refused if the other side is no peer, speaks another version, or claims too much.
func TestGreetings(t *testing.T) {
	x := newTarget(t, Options{})
	good := append([]byte(protocol.Magic), protocol.Version, 0)
	good = binary.LittleEndian.AppendUint64(good, 7)
	good = binary.LittleEndian.AppendUint32(good, 16)
	good = binary.LittleEndian.AppendUint16(good, 0)
	for what, b := range map[string][]byte{
		"good":      good,
		"magic":     append([]byte("GET / HT"), good[8:]...),
		"version":   append(append([]byte(protocol.Magic), protocol.Version+1), good[9:]...),
		"depth":     append(append(append([]byte{}, good[:18]...), 0, 0, 2, 0), 0, 0),
		"long text": append(append([]byte{}, good[:22]...), 1, 4),
	} {
		conn, err := net.Dial("tcp", x.addr)
		require.NoError(t, err)
		_, err = conn.Write(b)
		require.NoError(t, err)
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err = io.ReadFull(conn, make([]byte, len(good)))
		if what == "good" {
			assert.NoError(t, err)
		} else {
			assert.Error(t, err, what)
		}
		conn.Close()
	}
}

// TestTLS: with certificates, connections use TLS 1.3 and nothing else.
func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool}
	x := newTarget(t, Options{TLS: config})
	require.NoError(t, x.readsWord(t, Options{TLS: config}))
	assert.Error(t, x.readsWord(t, Options{}), "without TLS")
	assert.Error(t, x.readsWord(t, Options{TLS: &tls.Config{}}), "of an unknown authority")
	conn, err := tls.Dial("tcp", x.addr, &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS12})
	if err == nil {
		conn.Close()
	}
	assert.Error(t, err, "of TLS 1.2")
	plain := newTarget(t, Options{})
	assert.Error(t, plain.readsWord(t, Options{TLS: config}), "to one without TLS")
}
