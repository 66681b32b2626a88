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

	"flashdbm/servers/store"
)

const nodeFile = "ramp.json"

// layout is the version of the directory's files. Before 2, versions did not say which client had written them.
const layout = 2

// identity is what all lives of a node have in common.
type identity struct {
	Layout     int    `json:"layout"` // layout
	Seed       uint64 `json:"seed"`   // of the hash of keys
	Partitions int    `json:"partitions"`
}

func drawn(partitions int) identity {
	var b [8]byte
	rand.Read(b[:])
	return identity{layout, binary.NativeEndian.Uint64(b[:]), partitions}
}

// readIdentity returns the identity in the directory, or writes a new one. partitions is 0 for any number; a new
// directory then has 1.
func readIdentity(dir string, partitions int) (id identity, err error) {
	if dir == "" {
		return drawn(max(1, partitions)), nil
	}
	path := filepath.Join(dir, nodeFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newIdentity(dir, path, max(1, partitions))
	}
	if err != nil {
		return id, err
	}
	if err := json.Unmarshal(b, &id); err != nil || id.Layout != layout || id.Partitions < 1 {
		return id, fmt.Errorf("machine: %s is not what this program has written: %v", path, err)
	}
	if partitions != 0 && partitions != id.Partitions {
		return id, fmt.Errorf("machine: %s has %d partitions, so it cannot be opened with %d; the number is chosen when the directory is new", dir, id.Partitions, partitions)
	}
	return id, nil
}

func newIdentity(dir, path string, partitions int) (id identity, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return id, err
	}
	old, err := filepath.Glob(filepath.Join(dir, "partition-*.fdbm"))
	if err != nil || len(old) > 0 {
		return id, fmt.Errorf("machine: %s has files of partitions and no %s, without which their keys cannot be found", dir, nodeFile)
	}
	id = drawn(partitions)
	b, err := json.Marshal(id)
	if err != nil {
		return id, err
	}
	return id, store.WriteFile(path, append(b, '\n'))
}

// knownIdentity reads the identity in the directory of a node of several, if there is one.
func knownIdentity(dir string, id *identity) error {
	if dir == "" {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(dir, nodeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, id)
	}
	return err
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
	if err := json.Unmarshal(b, &id); err != nil || id != want {
		return id, fmt.Errorf("machine: %s is of another cluster, or of none: %s; give this node a directory of its own", dir, b)
	}
	return id, nil
}
