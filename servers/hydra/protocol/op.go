package protocol

import "fmt"

// Op is the op code of a request; the answer has the same. Op codes from 0xF0 belong to package wire.
type Op uint8

// The requests.
const (
	OpGet           Op = 1  // key: its item, and with FlagPointer a pointer to it
	OpPut           Op = 2  // sets the key
	OpInsert        Op = 3  // sets the key if it is absent
	OpUpdate        Op = 4  // sets the key if it is present
	OpRemove        Op = 5  // removes the key
	OpCompareAndSet Op = 6  // sets the key (with FlagRemove: removes it) if its version is the operand; 0: the key does not exist
	OpAdd           Op = 7  // adds the operand to the decimal number that is the value, 0 if the key does not exist
	OpRenew         Op = 8  // extends the leases of many items, and the tenure
	OpScan          Op = 9  // the items of a range of hashes
	OpBatch         Op = 10 // requests that are served one after another, and answered together
	OpExtent        Op = 11 // the fabric's key of an extent that pointers name
	OpMap           Op = 12 // which shards exist, and where
	OpAuth          Op = 13 // the client's proof that it has the cluster's secret
)

var opNames = map[Op]string{
	OpGet: "GET", OpPut: "PUT", OpInsert: "INSERT", OpUpdate: "UPDATE", OpRemove: "REMOVE", OpCompareAndSet: "COMPARE-AND-SET",
	OpAdd: "ADD", OpRenew: "RENEW", OpScan: "SCAN", OpBatch: "BATCH", OpExtent: "EXTENT", OpMap: "MAP", OpAuth: "AUTH",
}

func (o Op) String() string {
	if s, ok := opNames[o]; ok {
		return s
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// IsWrite reports whether the request changes the store, and so has a number.
func (o Op) IsWrite() bool { return OpPut <= o && o <= OpAdd }

// Flags are in the header of a message.
type Flags uint8

const (
	// FlagPointer, in a GET: the client wants a pointer. In the answer: there is one.
	FlagPointer Flags = 1 << 0
	// FlagRelative: the expiry is in milliseconds from when the shard serves the write, not since 1970.
	FlagRelative Flags = 1 << 1
	// FlagKeepExpiry: the expiry does not change.
	FlagKeepExpiry Flags = 1 << 2
	// FlagRemove makes a COMPARE-AND-SET remove the key.
	FlagRemove Flags = 1 << 3
	// FlagKeysOnly, in a SCAN: without values.
	FlagKeysOnly Flags = 1 << 4
	// FlagMore, in the answer to a SCAN: the range continues at next.
	FlagMore Flags = 1 << 5
)

// Status is the outcome of a request.
type Status uint16

// The statuses. After all except StatusOK and StatusUnknownOutcome the store is unchanged.
const (
	StatusOK             Status = 0
	StatusNotFound       Status = 1  // the key does not exist
	StatusExists         Status = 2  // INSERT: the key exists
	StatusVersion        Status = 3  // COMPARE-AND-SET: the key has another version
	StatusFull           Status = 4  // no room for the item
	StatusUnavailable    Status = 5  // the shard cannot serve this now; retry later
	StatusUnknownOutcome Status = 6  // an earlier life of the shard may or may not have applied this write
	StatusMoved          Status = 7  // another shard owns the key: ask for the map
	StatusForgotten      Status = 8  // the number is below the oldest that the client has named
	StatusTooLarge       Status = 9  // key, value or answer exceed a limit
	StatusNotNumber      Status = 10 // ADD: the value is no decimal number of 64 bits
	StatusOverflow       Status = 11 // ADD: the sum needs more than 64 bits
	StatusMalformed      Status = 12 // the body does not match the op code
	StatusUnknownOp      Status = 13 // this shard does not know the op code
	StatusDenied         Status = 14 // AUTH is missing, or wrong
)

var statusNames = [...]string{"OK", "not found", "exists", "version differs", "full", "unavailable", "unknown outcome", "moved",
	"number forgotten", "too large", "not a number", "overflow", "malformed", "unknown op", "denied"}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint16(s))
}

// ItemFlags are stored with an item.
type ItemFlags uint16

const (
	// ItemManifest: the value is the manifest of a larger one, a Manifest.
	ItemManifest ItemFlags = 1 << 0
	// ItemChunk: the value is a part of a larger one, and the key is that of a circle.Chunk. A SCAN returns only its
	// key.
	ItemChunk ItemFlags = 1 << 1
)
