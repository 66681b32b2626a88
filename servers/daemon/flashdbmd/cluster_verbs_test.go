//go:build verbs && linux

package main

import (
	"os"

	"flashdbm/servers/fabric"
)

func init() {
	deviceProvider = os.Getenv("VERBS_PROVIDER")
	openFleetDevice = func() (fabric.Domain, error) { return openDevice(*clusterVerbs + ":0") }
}
