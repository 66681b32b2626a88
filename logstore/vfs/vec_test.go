package vfs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSkipVec(t *testing.T) {
	tests := []struct {
		n    int
		want []string
	}{
		{0, []string{"abc", "d", "ef"}}, {1, []string{"bc", "d", "ef"}}, {3, []string{"d", "ef"}},
		{4, []string{"ef"}}, {5, []string{"f"}}, {6, nil},
	}
	for _, test := range tests {
		var got []string
		for _, b := range skipVec([][]byte{[]byte("abc"), []byte("d"), []byte("ef")}, test.n) {
			got = append(got, string(b))
		}
		require.Equal(t, test.want, got)
	}
}
