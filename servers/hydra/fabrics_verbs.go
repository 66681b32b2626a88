//go:build verbs

package hydra

import (
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/verbs"
)

func init() {
	fabrics["verbs"] = func() (fabric.Domain, error) { return verbs.Open(verbs.Options{}) }
}
