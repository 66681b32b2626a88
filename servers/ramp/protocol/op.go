package protocol

import "fmt"

// Op is the op code of a request; the answer has the same. Op codes from 0xF0 belong to package wire.
type Op uint8

// The requests.
const (
	OpPrepare Op = 1 // versions of a transaction, which stay invisible
	OpCommit  Op = 2 // makes the versions visible
	OpAbort   Op = 3 // discards the versions, and refuses the timestamp from now on
	OpGet     Op = 4 // versions of keys
	OpExtent  Op = 5 // the fabric's key of an extent that pointers name
	OpLock    Op = 6 // two-phase locking: locks of keys, and their values
	OpUnlock  Op = 7 // two-phase locking: releases the locks of a transaction
	OpAuth    Op = 8 // the client's proof that it has the secret
	OpMap     Op = 9 // which node serves which partition, in a table with replicas
)

var opNames = map[Op]string{
	OpPrepare: "PREPARE", OpCommit: "COMMIT", OpAbort: "ABORT", OpGet: "GET", OpExtent: "EXTENT", OpLock: "LOCK", OpUnlock: "UNLOCK", OpAuth: "AUTH", OpMap: "MAP",
}

func (o Op) String() string {
	if s, ok := opNames[o]; ok {
		return s
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// Flags are in the header of a message.
type Flags uint8

const (
	// FlagPointer, in a GET: the client wants pointers to slots.
	FlagPointer Flags = 1 << 0
	// FlagTimestamps, in a GET: timestamps without values.
	FlagTimestamps Flags = 1 << 1
	// FlagOnePhase, in a PREPARE: the partition has all keys of the transaction, so it commits at once.
	FlagOnePhase Flags = 1 << 2
	// FlagExclusive, in a LOCK: the keys will be written.
	FlagExclusive Flags = 1 << 3
)

// Status is the outcome of a request.
type Status uint16

// The statuses.
const (
	StatusOK          Status = 0
	StatusRefused     Status = 1  // PREPARE: a newer version is committed, or the timestamp was refused before: retry with a newer one
	StatusClock       Status = 2  // PREPARE: the timestamp is too far from the partition's time, which is in the answer
	StatusFull        Status = 3  // no room for the versions
	StatusUnavailable Status = 4  // the partition cannot serve this now; retry later
	StatusUnknown     Status = 5  // COMMIT: the transaction is not prepared here
	StatusTooLarge    Status = 6  // key, value or answer exceed a limit
	StatusMalformed   Status = 7  // the body does not match the op code
	StatusUnknownOp   Status = 8  // the op code is unknown
	StatusDenied      Status = 9  // AUTH is missing, or wrong
	StatusDie         Status = 10 // LOCK: an older transaction has one of the locks: release all, retry
	StatusMoved       Status = 11 // another partition owns one of the keys
)

var statusNames = [...]string{"OK", "refused", "clock", "full", "unavailable", "unknown transaction", "too large", "malformed", "unknown op", "denied", "die", "moved"}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint16(s))
}
