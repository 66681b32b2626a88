package ramp

import "errors"

// The errors of calls, for errors.Is.
var (
	// ErrUnavailable: a partition did not answer in time; nothing was written.
	ErrUnavailable = errors.New("ramp: a partition does not answer")
	// ErrUnknownOutcome: the transaction was or will be applied as a whole, or not at all.
	ErrUnknownOutcome = errors.New("ramp: the outcome of the transaction is unknown")
	// ErrFull: a partition has no room. Nothing was written.
	ErrFull = errors.New("ramp: a partition is full")
	// ErrTooLarge: too many keys, or a key, a value or the transaction's part at a partition is too long. Nothing was written.
	ErrTooLarge = errors.New("ramp: too large")
	// ErrDenied: the server requires a secret, or another one.
	ErrDenied = errors.New("ramp: the secret is wrong or missing")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("ramp: client is closed")
	// errProtocol: a partition has sent an invalid message.
	errProtocol = errors.New("ramp: a partition breaks the protocol")
)
