//go:build !verbs

package main

import (
	"fmt"

	"flashdbm/servers/fabric"
)

// openDevice is for programs that are built with the tag verbs, which need libfabric.
func openDevice(string) (fabric.Domain, error) {
	return nil, fmt.Errorf("--verbs: this flashdbmd was built without RDMA devices; make flashdbmd-verbs builds one that has them (%w)", errUsage)
}
