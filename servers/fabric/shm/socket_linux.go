package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"flashdbm/servers/fabric"
)

// The packets of a connection, by their first byte. Numbers are little-endian; the figures are bytes.
const (
	packetHello  = 'H' // from the dialling end: version 1, incarnation 8, hello; descriptors of its bell and its fence words
	packetAnswer = 'A' // the same from the accepting end
	packetReject = 'R' // reason
	packetMap    = 'M' // region 8, rkey 8: asks for the region's descriptor
	packetMapped = 'D' // region 8, bytes 8, place of its fence word 8, access 1; its descriptor
	packetRefuse = 'N' // region 8: no region has that key
	packetSend   = 'S' // bytes
	packetTaken  = 'K' // the Send was given to a Recv
	packetLarge  = 'X' // the Send is longer than the Recv
)

// version covers the packets, the fence words and the bells: processes of different versions share no memory.
const version = 1

const maxPacket = 1 + 64<<10

var errPacket = errors.New("fabric: a peer sends what makes no sense")

// send sends a packet with descriptors. It does not wait for the peer: a peer that no longer reads is treated as
// dead.
func send(conn *net.UnixConn, packet []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		_, failed = unix.SendmsgN(int(fd), packet, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	if failed != nil {
		return os.NewSyscallError("sendmsg", failed)
	}
	return err
}

// receive waits for the next packet. It returns the packet with the descriptors that belong to its kind; if their
// number is wrong it closes them all and returns an error.
func receive(conn *net.UnixConn, buffer []byte) (packet []byte, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(buffer, oob)
	if err != nil {
		return nil, nil, err
	}
	if oobn > 0 {
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return nil, nil, errPacket
		}
		for i := range messages {
			if some, err := unix.ParseUnixRights(&messages[i]); err == nil {
				fds = append(fds, some...)
			}
		}
	}
	if n == 0 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(fds)
		if n == 0 {
			return nil, nil, net.ErrClosed // a packet always has a byte
		}
		return nil, nil, errPacket
	}
	if want := descriptors[buffer[0]]; len(fds) != want {
		closeAll(fds)
		return nil, nil, errPacket
	}
	return buffer[:n], fds, nil
}

// descriptors is the number of descriptors of each kind of packet.
var descriptors = map[byte]int{packetHello: 2, packetAnswer: 2, packetMapped: 1}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// greet sends a hello or an answer.
func greet(conn *net.UnixConn, kind byte, d *Domain, recv *queue, text []byte) error {
	packet := binary.LittleEndian.AppendUint64([]byte{kind, version}, d.nonce)
	return send(conn, append(packet, text...), recv.bell.mem.fd, d.fences.fd)
}

// A greeting is the hello or the answer of a peer.
type greeting struct {
	nonce  uint64
	text   []byte
	bell   []byte // the bell of the peer's Recv queue
	fences []byte
}

// parseGreeting maps the memory that a greeting brings. It closes the descriptors.
func parseGreeting(packet []byte, fds []int) (*greeting, error) {
	const head = 1 + 1 + 8
	if len(packet) < head || len(packet) > head+fabric.MaxHello {
		closeAll(fds)
		return nil, errPacket
	}
	if packet[1] != version {
		closeAll(fds)
		return nil, fmt.Errorf("fabric: the peer speaks version %d of shm, this process %d", packet[1], version)
	}
	g := &greeting{nonce: binary.LittleEndian.Uint64(packet[2:]), text: append([]byte(nil), packet[head:]...)}
	var err error
	if g.bell, err = mapShared(fds[0], bellSize, true); err != nil {
		unix.Close(fds[1])
		return nil, err
	}
	if g.fences, err = mapShared(fds[1], maxRegions*8, false); err != nil {
		unmap(g.bell)
		return nil, err
	}
	return g, nil
}

func (g *greeting) drop() {
	unmap(g.bell)
	unmap(g.fences)
}

// who describes the process at the other end.
func who(conn *net.UnixConn) string {
	name := "shm"
	if raw, err := conn.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			if c, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				name = fmt.Sprintf("pid %d", c.Pid)
			}
		})
	}
	return name
}
