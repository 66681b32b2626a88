package machine

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"flashdbm/servers/circle"
	"flashdbm/servers/store"
)

const nodeFile = "node.json"

// identity is what all lives of a node have in common.
type identity struct {
	Layout int    `json:"layout"` // 1
	Seed   uint64 `json:"seed"`   // of the hash of keys
	Shards int    `json:"shards"` // at first
	// Circle has the present shards, if they are others than at first. It is written when a change of the shards is
	// complete.
	Circle *circle.Assignment `json:"circle,omitempty"`
}

// circle returns the present assignment of shards.
func (id *identity) circle() circle.Assignment {
	if id.Circle != nil {
		return *id.Circle
	}
	return circle.First(id.Shards)
}

func drawn(shards int) identity {
	var b [8]byte
	rand.Read(b[:])
	return identity{Layout: 1, Seed: binary.NativeEndian.Uint64(b[:]), Shards: shards}
}

// readIdentity returns the identity in the directory, or writes a new one. shards is 0 for any number; a new
// directory then has 1.
func readIdentity(dir string, shards int) (id identity, err error) {
	if dir == "" {
		return drawn(max(1, shards)), nil
	}
	path := filepath.Join(dir, nodeFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newIdentity(dir, path, max(1, shards))
	}
	if err != nil {
		return id, err
	}
	if err := json.Unmarshal(b, &id); err != nil || id.Layout != 1 || id.Shards < 1 {
		return id, fmt.Errorf("machine: %s is not what this program has written: %v", path, err)
	}
	if n := len(id.circle().Shards); shards != 0 && shards != n {
		return id, fmt.Errorf("machine: %s has %d shards, so it cannot be opened with %d; the number is chosen when the directory is new", dir, n, shards)
	}
	return id, nil
}

func newIdentity(dir, path string, shards int) (id identity, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return id, err
	}
	old, err := filepath.Glob(filepath.Join(dir, "shard-*.fdbm"))
	if err != nil || len(old) > 0 {
		return id, fmt.Errorf("machine: %s has files of shards and no %s, without which their keys cannot be found", dir, nodeFile)
	}
	id = drawn(shards)
	b, err := json.Marshal(id)
	if err != nil {
		return id, err
	}
	return id, store.WriteFile(path, append(b, '\n'))
}

// adoptIdentity writes the identity of a cluster to a new directory. It refuses a directory of another cluster.
func adoptIdentity(dir string, want identity) (id identity, err error) {
	if dir == "" {
		return want, nil
	}
	path := filepath.Join(dir, nodeFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return id, err
		}
		b, _ := json.Marshal(want)
		return want, store.WriteFile(path, append(b, '\n'))
	}
	if err != nil {
		return id, err
	}
	if err := json.Unmarshal(b, &id); err != nil || id.Layout != want.Layout || id.Seed != want.Seed || id.Shards != want.Shards {
		return id, fmt.Errorf("machine: %s is of another cluster, or of none: %s; give this node a directory of its own", dir, b)
	}
	return id, nil
}
