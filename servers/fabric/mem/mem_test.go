package mem

import (
	"fmt"
	"sync/atomic"
	"testing"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/fabrictest"
)

func TestConformance(t *testing.T) {
	network := NewNetwork()
	var names atomic.Uint64
	fabrictest.Run(t, fabrictest.Provider{
		Open:     func() (fabric.Domain, error) { return network.Open(), nil },
		Addr:     func(string) string { return fmt.Sprint("owner ", names.Add(1)) },
		RealTime: true,
	})
}
