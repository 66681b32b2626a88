//go:build verbs

package main

import (
	"fmt"
	"net"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/verbs"
)

// deviceProvider is the provider of libfabric; "" is the default. Tests set another one where there is no device.
var deviceProvider string

// openDevice opens the RDMA device that has an address, host:port.
func openDevice(addr string) (fabric.Domain, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("--verbs: %w (%w)", err, errUsage)
	}
	return verbs.Open(verbs.Options{Addr: host, Provider: deviceProvider})
}
