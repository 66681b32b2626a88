package protocol

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
)

// Revision is the version of this protocol.
const Revision = 2

// AnyPartition, in a hello, asks for any partition of the node.
const AnyPartition = 1<<32 - 1

// The sizes of the proof that the other side has the secret, and of its nonce.
const (
	NonceSize = 16
	ProofSize = sha256.Size
)

const magic = "FDBR"

// Hello is the client's part in making a connection. It is in the fabric's hello, after that of package wire.
type Hello struct {
	Partition uint32
	Client    uint64 // random, drawn when the client is created
	Nonce     [NonceSize]byte
}

const helloSize = 40

// Append appends the hello.
func (h *Hello) Append(b []byte) []byte {
	b = append(b, magic...)
	b = le.AppendUint16(b, Revision)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, h.Partition)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, h.Client)
	return append(b, h.Nonce[:]...)
}

// Parse decodes the hello.
func (h *Hello) Parse(b []byte) error {
	if err := checkMagic(b, helloSize); err != nil {
		return err
	}
	h.Partition, h.Client = le.Uint32(b[8:]), le.Uint64(b[16:])
	copy(h.Nonce[:], b[24:])
	return nil
}

func checkMagic(b []byte, size int) error {
	if len(b) < 8 || string(b[:4]) != magic {
		return fmt.Errorf("%w: the peer does not speak RAMP's protocol", ErrMalformed)
	}
	if v := le.Uint16(b[4:]); v != Revision {
		return fmt.Errorf("%w: the peer speaks version %d of the protocol, this end version %d", ErrMalformed, v, Revision)
	}
	if len(b) != size {
		return fmt.Errorf("%w: a greeting of %d bytes instead of %d", ErrMalformed, len(b), size)
	}
	return nil
}

// Welcome is the partition's part in making a connection.
type Welcome struct {
	Partition  uint32
	Partitions uint32 // of the table
	NeedsAuth  bool   // the first request has to be AUTH
	Replicas   bool   // partitions have replicas on several nodes: prepared versions outlive the partition's term
	Seed       uint64 // of the hash of keys
	Term       uint64 // of the partition's life
	Life       uint64 // a partition keeps its prepared versions as long as this stays the same
	Nonce      [NonceSize]byte
	Proof      [ProofSize]byte // Prove(secret, ServerSide, hello, welcome); zero without a secret
}

const welcomeSize = 88

// Append appends the welcome.
func (w *Welcome) Append(b []byte) []byte {
	flags := uint16(0)
	if w.NeedsAuth {
		flags = 1
	}
	if w.Replicas {
		flags |= 2
	}
	b = append(b, magic...)
	b = le.AppendUint16(b, Revision)
	b = le.AppendUint16(b, flags)
	b = le.AppendUint32(b, w.Partition)
	b = le.AppendUint32(b, w.Partitions)
	b = le.AppendUint64(b, w.Seed)
	b = le.AppendUint64(b, w.Term)
	b = append(b, w.Nonce[:]...)
	b = append(b, w.Proof[:]...)
	return le.AppendUint64(b, w.Life)
}

// Parse decodes the welcome.
func (w *Welcome) Parse(b []byte) error {
	if err := checkMagic(b, welcomeSize); err != nil {
		return err
	}
	w.NeedsAuth, w.Replicas = le.Uint16(b[6:])&1 != 0, le.Uint16(b[6:])&2 != 0
	w.Partition, w.Partitions = le.Uint32(b[8:]), le.Uint32(b[12:])
	w.Seed, w.Term = le.Uint64(b[16:]), le.Uint64(b[24:])
	copy(w.Nonce[:], b[32:])
	copy(w.Proof[:], b[48:])
	w.Life = le.Uint64(b[80:])
	if w.Partitions == 0 || w.Partitions > MaxPartitions || w.Partition >= w.Partitions {
		return fmt.Errorf("%w: partition %d of %d welcomes", ErrMalformed, w.Partition, w.Partitions)
	}
	return nil
}

// Side says whose proof it is, so that a proof cannot be sent back to its maker.
type Side byte

// The two sides.
const (
	ServerSide Side = 's'
	ClientSide Side = 'c'
)

// Prove returns a side's proof that it has the secret, for this connection only: it covers both nonces, client and partition.
func Prove(secret []byte, side Side, h *Hello, w *Welcome) [ProofSize]byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte{byte(side)})
	m.Write(h.Append(nil))
	m.Write(w.Nonce[:])
	m.Write(le.AppendUint32(nil, w.Partition))
	return [ProofSize]byte(m.Sum(nil))
}

// ProofEqual compares two proofs in constant time.
func ProofEqual(a, b []byte) bool { return hmac.Equal(a, b) }
