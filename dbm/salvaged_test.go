package dbm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// eachSalvaged calls look with what is recovered from a file with keyspaces: from the file as it is, without its
// superblocks, and without the mark of keyspaces, wherever that is.
func eachSalvaged(t *testing.T, path string, look func(to *DB, marked bool)) {
	t.Helper()
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for i, damage := range []func(file []byte){
		func([]byte) {},
		func(file []byte) { clear(file[:2*4096]) },
		func(file []byte) {
			for at := bytes.Index(file, spaceMark); at >= 0; at = bytes.Index(file, spaceMark) {
				file[at+5] ^= 1
			}
		},
	} {
		file := slices.Clone(whole)
		damage(file)
		bad, fresh := filepath.Join(filepath.Dir(path), fmt.Sprint("bad", i)), filepath.Join(filepath.Dir(path), fmt.Sprint("fresh", i))
		require.NoError(t, os.WriteFile(bad, file, 0o600))
		_, err := Salvage(t.Context(), bad, fresh, nil)
		require.NoError(t, err)
		to, err := openUnsynced(fresh, nil)
		require.NoError(t, err)
		look(to, i < 2)
		require.NoError(t, to.Close())
	}
}
