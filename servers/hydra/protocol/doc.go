// Package protocol defines the messages between clients of HydraDB and its shards: op codes, statuses, and the bodies
// of requests and answers. Package wire transports the bodies; the layouts are in servers/docs/wire.md.
//
// All numbers are little-endian. Encoders append to a buffer of the caller. Decoders check every length against the
// bytes that are there, and return slices of the body, which are valid as long as the body is. A decoder accepts only
// what its encoder could have written, except that it ignores reserved bytes.
//
// # Writes are applied once
//
// A write names its client (in the hello), its number, and the client's oldest number without an answer. One counter
// serves all shards. A client has no number under way that is Window or more above its oldest. A shard keeps the
// answer to a number until the oldest has passed it. A write whose number has been answered gets the same answer
// again, and a write below the oldest is refused with StatusForgotten. The hello names the client's next number: a
// shard that does not know the client refuses lower numbers with StatusUnknownOutcome, because it cannot tell whether
// its predecessor applied those writes.
package protocol

import "flashdbm/servers/circle"

// Limits of what is stored.
const (
	MaxKey    = 65527     // bytes of a key: with 9 bytes before it, the longest key of a flashdbm file
	MaxValue  = 4 << 20   // bytes of a value; larger ones are chunks of this size under a manifest
	MaxLarge  = 512 << 20 // bytes of a value in chunks
	MaxBody   = MaxValue + 128<<10
	MaxBatch  = 4096 // requests of a batch
	MaxRenew  = 4096 // keys of a RENEW
	MaxShards = 4096 // shards of a map
	// Window is how far above the oldest number without an answer a client's numbers may be. It bounds the memory of
	// a shard for each client: some 64 bytes for each number. Smaller: a proxy that sends an MSET of a thousand keys
	// has to wait for answers in between.
	Window = 1024
)

// ErrMalformed is the error of every decoder.
var ErrMalformed = circle.ErrMalformed
