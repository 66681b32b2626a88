package shm

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/fabrictest"
)

var names atomic.Uint64

var provider = fabrictest.Provider{
	Open:      func() (fabric.Domain, error) { return Open() },
	Addr:      func(dir string) string { return filepath.Join(dir, fmt.Sprint("s", names.Add(1))) },
	Processes: true,
	RealTime:  true,
}

func TestMain(m *testing.M) { fabrictest.Main(m, provider) }

func TestConformance(t *testing.T) { fabrictest.Run(t, provider) }

func TestMeasure(t *testing.T) { fabrictest.Measure(t, provider) }
