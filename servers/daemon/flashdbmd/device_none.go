//go:build !verbs

package main

import (
	"fmt"

	"flashdbm/servers/fabric"
)

// openDevice fails: only programs that are built with the tag verbs, which needs libfabric, can open an RDMA device.
func openDevice(string) (fabric.Domain, error) {
	return nil, fmt.Errorf("--verbs: this flashdbmd was built without RDMA devices; make flashdbmd-verbs builds one that has them (%w)", errUsage)
}
