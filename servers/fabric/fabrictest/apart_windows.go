package fabrictest

import (
	"errors"
	"testing"
	"time"
)

// startProcess skips the test: on this system the suite can neither stop processes nor measure them.
func startProcess(t *testing.T, addr string) owner {
	t.Skip("processes of their own are tested on Unix systems")
	return nil
}

func processTime() (time.Duration, error) { return 0, errors.ErrUnsupported }
