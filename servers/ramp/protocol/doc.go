// Package protocol defines the messages between clients and partitions of a RAMP table: the bodies of messages,
// timestamps, and the part of an item that describes the transaction that wrote it. Package wire transports the
// messages. The layouts are in servers/docs/wire.md.
//
// Every decoder accepts any bytes: invalid ones give an error that wraps ErrMalformed. Decoded slices are parts of
// the body.
package protocol

import (
	"encoding/binary"
	"errors"
)

// Limits.
const (
	MaxKey        = 65_527          // bytes
	MaxValue      = 1 << 20         // bytes
	MaxKeys       = 4096            // in a transaction
	MaxBody       = 4 << 20         // bytes of a message
	MaxPartitions = 1024            // in a table
	MaxClients    = 1 << clientBits // clients at a time
)

// ErrMalformed reports bytes that are no message of this protocol, for errors.Is.
var ErrMalformed = errors.New("ramp: malformed message")

var le = binary.LittleEndian
