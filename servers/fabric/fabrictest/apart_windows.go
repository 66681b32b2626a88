package fabrictest

import (
	"errors"
	"testing"
	"time"
)

// startProcess skips the test: the suite neither stops processes on this system nor measures them.
func startProcess(t *testing.T, addr string) owner {
	t.Skip("processes of their own are tested on Unix systems")
	return nil
}

func processTime() (time.Duration, error) { return 0, errors.ErrUnsupported }
