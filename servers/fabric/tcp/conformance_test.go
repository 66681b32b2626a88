package tcp

import (
	"testing"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/fabrictest"
)

var provider = fabrictest.Provider{
	Open:      func() (fabric.Domain, error) { return Open(Options{}), nil },
	Addr:      func(string) string { return "127.0.0.1:0" },
	Processes: true,
	RealTime:  true,
}

func TestMain(m *testing.M) { fabrictest.Main(m, provider) }

func TestConformance(t *testing.T) { fabrictest.Run(t, provider) }

func TestMeasure(t *testing.T) { fabrictest.Measure(t, provider) }
