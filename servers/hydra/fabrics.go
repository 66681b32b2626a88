package hydra

import (
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/shm"
	"flashdbm/servers/fabric/tcp"
)

// fabrics opens a domain by the scheme of an address. Options.Fabrics has precedence.
var fabrics = map[string]func() (fabric.Domain, error){
	"shm": func() (fabric.Domain, error) { return shm.Open() },
	"tcp": func() (fabric.Domain, error) { return tcp.Open(tcp.Options{}), nil },
}
