//go:build verbs

package verbs

import (
	"os"
	"testing"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/fabrictest"
)

// These are environment variables, so that the second process of the suite has them too: libfabric's provider, by
// default verbs, and this machine's IP address on the network of the device.
var (
	options = Options{Provider: os.Getenv("VERBS_PROVIDER"), Addr: os.Getenv("VERBS_ADDR")}

	provider = fabrictest.Provider{
		Open:      func() (fabric.Domain, error) { return Open(options) },
		Addr:      func(string) string { return options.Addr + ":0" },
		Processes: true,
		RealTime:  true,
	}
)

func TestMain(m *testing.M) { fabrictest.Main(m, provider) }

func TestConformance(t *testing.T) { fabrictest.Run(t, provider) }

func TestMeasure(t *testing.T) { fabrictest.Measure(t, provider) }
