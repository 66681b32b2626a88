//go:build !linux

package shm

import (
	"errors"
	"fmt"

	"flashdbm/servers/fabric"
)

// Open returns an error: shm needs memfds and futexes, which only Linux has. Package tcp works on this system.
func Open() (fabric.Domain, error) {
	return nil, fmt.Errorf("fabric: shm is for Linux: %w", errors.ErrUnsupported)
}
