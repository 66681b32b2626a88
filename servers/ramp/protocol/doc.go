// Package protocol is what clients and partitions of a RAMP table say to each other: the bodies of messages, timestamps, and what an item
// says of the transaction that wrote it. Package wire carries the messages. The layouts are in servers/docs/wire.md.
//
// Every decoder takes any bytes: what is not well formed is an error that wraps ErrMalformed. Decoded slices are parts of the body.
package protocol

import (
	"encoding/binary"
	"errors"
)

// Limits.
const (
	MaxKey        = 65_527          // bytes
	MaxValue      = 1 << 20         // bytes
	MaxKeys       = 4096            // of a transaction
	MaxBody       = 4 << 20         // bytes of a message
	MaxPartitions = 1024            // of a table
	MaxClients    = 1 << clientBits // clients at a time
)

// ErrMalformed says that bytes are no message of this protocol, for errors.Is.
var ErrMalformed = errors.New("ramp: malformed message")

var le = binary.LittleEndian
