package vfs

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInSteps: data is appended to the file in steps. A pipe is written without steps.
func TestInSteps(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(name)
	require.NoError(t, err)
	defer f.Close()
	all := []byte("before")
	_, err = f.Write(all)
	require.NoError(t, err)
	w := InSteps(f)
	r := rand.New(rand.NewPCG(1, 1))
	for len(all) < 5*outStep {
		b := bytes.Repeat([]byte{byte(r.Int())}, r.IntN(2*outStep))
		n, err := w.Write(b)
		require.NoError(t, err)
		require.Equal(t, len(b), n)
		all = append(all, b...)
		steps := w.(*stepWriter)
		require.EqualValues(t, len(all), steps.at)
		require.Less(t, steps.at-steps.out, int64(outStep))
	}
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	require.True(t, bytes.Equal(all, got))

	pr, pw, err := os.Pipe()
	require.NoError(t, err)
	require.Same(t, pw, InSteps(pw))
	go func() { pw.Write([]byte("piped")); pw.Close() }()
	got, err = io.ReadAll(pr)
	require.NoError(t, err)
	require.Equal(t, "piped", string(got))

	f.Close()
	_, err = w.Write([]byte("closed"))
	require.Error(t, err)
}
