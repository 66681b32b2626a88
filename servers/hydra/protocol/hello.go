package protocol

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
)

// Version is the version of this protocol.
const Version = 1

// AnyShard, in a hello, asks for any shard of the node.
const AnyShard = 1<<32 - 1

// The sizes of the proof that the other side has the cluster's secret, and of its nonce.
const (
	NonceSize = 16
	ProofSize = sha256.Size
)

// magic begins hello and welcome.
const magic = "FDBH"

// Hello is the client's part in making a connection: it is in the fabric's hello, after that of package wire.
type Hello struct {
	Shard  uint32
	Client uint64 // random, drawn when the client is created
	Next   uint64 // the client's next number: all that it has sent on earlier connections is below
	Nonce  [NonceSize]byte
}

const helloSize = 44

// Append appends the hello.
func (h *Hello) Append(b []byte) []byte {
	b = append(b, magic...)
	b = le.AppendUint16(b, Version)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, h.Shard)
	b = le.AppendUint64(b, h.Client)
	b = le.AppendUint64(b, h.Next)
	return append(b, h.Nonce[:]...)
}

// Parse decodes the hello.
func (h *Hello) Parse(b []byte) error {
	if err := checkMagic(b, helloSize); err != nil {
		return err
	}
	h.Shard, h.Client, h.Next = le.Uint32(b[8:]), le.Uint64(b[12:]), le.Uint64(b[20:])
	if h.Next == 0 {
		return fmt.Errorf("%w: the hello's next number is 0", ErrMalformed)
	}
	copy(h.Nonce[:], b[28:])
	return nil
}

func checkMagic(b []byte, size int) error {
	if len(b) < 8 || string(b[:4]) != magic {
		return fmt.Errorf("%w: the peer does not speak HydraDB's protocol", ErrMalformed)
	}
	if v := le.Uint16(b[4:]); v != Version {
		return fmt.Errorf("%w: the peer speaks version %d of the protocol, this end version %d", ErrMalformed, v, Version)
	}
	if len(b) != size {
		return fmt.Errorf("%w: a greeting of %d bytes instead of %d", ErrMalformed, len(b), size)
	}
	return nil
}

// Welcome is the shard's part in making a connection.
type Welcome struct {
	Shard      uint32
	MapVersion uint32
	Term       uint64 // of the shard's reign
	NeedsAuth  bool   // the first request has to be AUTH
	Nonce      [NonceSize]byte
	Proof      [ProofSize]byte // Prove(secret, ServerSide, hello, welcome); zero without a secret
}

const welcomeSize = 76

// Append appends the welcome.
func (w *Welcome) Append(b []byte) []byte {
	var flags uint16
	if w.NeedsAuth {
		flags = 1
	}
	b = append(b, magic...)
	b = le.AppendUint16(b, Version)
	b = le.AppendUint16(b, flags)
	b = le.AppendUint32(b, w.Shard)
	b = le.AppendUint32(b, w.MapVersion)
	b = le.AppendUint64(b, w.Term)
	b = append(b, w.Nonce[:]...)
	b = append(b, w.Proof[:]...)
	return le.AppendUint32(b, 0)
}

// Parse decodes the welcome.
func (w *Welcome) Parse(b []byte) error {
	if err := checkMagic(b, welcomeSize); err != nil {
		return err
	}
	w.NeedsAuth = le.Uint16(b[6:])&1 != 0
	w.Shard, w.MapVersion, w.Term = le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint64(b[16:])
	copy(w.Nonce[:], b[24:])
	copy(w.Proof[:], b[24+NonceSize:])
	return nil
}

// Side says whose proof it is, so that a proof cannot be sent back to its maker.
type Side byte

// The two sides.
const (
	ServerSide Side = 's'
	ClientSide Side = 'c'
)

// Prove returns a side's proof that it has the secret, for this connection only: it covers both nonces, client and shard.
func Prove(secret []byte, side Side, h *Hello, w *Welcome) [ProofSize]byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte{byte(side)})
	m.Write(h.Append(nil))
	m.Write(w.Nonce[:])
	m.Write(le.AppendUint32(nil, w.Shard))
	return [ProofSize]byte(m.Sum(nil))
}

// ProofEqual compares two proofs in constant time.
func ProofEqual(a, b []byte) bool { return hmac.Equal(a, b) }
