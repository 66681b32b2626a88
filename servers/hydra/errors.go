package hydra

import (
	"errors"
	"fmt"

	"flashdbm/servers/hydra/protocol"
)

// The errors of calls, for errors.Is. The error of an ended context is joined with ErrUnavailable or
// ErrUnknownOutcome.
var (
	ErrNotFound       = errors.New("hydra: key not found")
	ErrExists         = errors.New("hydra: key exists")
	ErrVersion        = errors.New("hydra: the key has another version")
	ErrFull           = errors.New("hydra: no room left at the shard")
	ErrUnavailable    = errors.New("hydra: no shard serves the key at present; nothing was changed")
	ErrUnknownOutcome = errors.New("hydra: the write may have been applied, or not")
	ErrTooLarge       = errors.New("hydra: key or value too large")
	ErrNotNumber      = errors.New("hydra: the value is no decimal number of 64 bits")
	ErrOverflow       = errors.New("hydra: the sum needs more than 64 bits")
	ErrDenied         = errors.New("hydra: the cluster's secret is another one")
	ErrClosed         = errors.New("hydra: client is closed")
	ErrIncomplete     = errors.New("hydra: chunks of the value are missing, or others than were written")
)

// statusError returns the error for the status of an answer that ends a call.
func statusError(s protocol.Status) error {
	switch s {
	case protocol.StatusOK:
		return nil
	case protocol.StatusNotFound:
		return ErrNotFound
	case protocol.StatusExists:
		return ErrExists
	case protocol.StatusVersion:
		return ErrVersion
	case protocol.StatusFull:
		return ErrFull
	case protocol.StatusUnknownOutcome, protocol.StatusForgotten:
		return ErrUnknownOutcome
	case protocol.StatusTooLarge:
		return ErrTooLarge
	case protocol.StatusNotNumber:
		return ErrNotNumber
	case protocol.StatusOverflow:
		return ErrOverflow
	case protocol.StatusDenied:
		return ErrDenied
	case protocol.StatusUnavailable, protocol.StatusMoved:
		return ErrUnavailable
	}
	return fmt.Errorf("hydra: the shard answers %q", s)
}
