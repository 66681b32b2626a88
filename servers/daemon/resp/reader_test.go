package resp

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// readAll parses everything from src, and returns the commands and the errors as texts.
func readAll(src io.Reader, anonymous bool) (all []string) {
	memory := budget{most: 1 << 20}
	d := reader{src: src, maxCommand: 64 << 10, maxBulk: 100, budget: &memory, anonymous: anonymous}
	for {
		args, ok, err := d.next()
		_, long := err.(longError)
		switch {
		case long:
			all = append(all, err.Error())
		case err != nil:
			return append(all, err.Error())
		case ok:
			all = append(all, fmt.Sprintf("%q", args))
		default:
			if d.fill() != nil {
				d.release()
				return append(all, fmt.Sprint("bytes kept: ", memory.used.Load()))
			}
		}
	}
}

// FuzzReader parses any bytes twice, as they arrive at once and one by one. The commands are the same, and all memory
// is given back.
func FuzzReader(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n*0\r\n*-1\r\n"), false)
	f.Add([]byte("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$101\r\n"+strings.Repeat("x", 101)+"\r\n*1\r\n$4\r\nPING\r\n"), false)
	f.Add([]byte("*3\r\n$300\r\n"+strings.Repeat("\r\n$", 100)+"\r\n$1\r\na\r\n$20000\r\n"+strings.Repeat("x", 20_000)+"\r\n"), false)
	f.Add([]byte("*1\r\n$101\r\n"+strings.Repeat("x", 101)+"yy"), false)
	f.Add([]byte("*1\r\n$536870913\r\n"), false)
	f.Add([]byte("*1\r\n$16385\r\n"), true)
	f.Add([]byte("*11\r\n"), true)
	f.Add([]byte("set \"a b\" 'c'\r\n"), false)
	f.Fuzz(func(t *testing.T, b []byte, anonymous bool) {
		at := readAll(bytes.NewReader(b), anonymous)
		one := readAll(iotest.OneByteReader(bytes.NewReader(b)), anonymous)
		require.Equal(t, at, one)
	})
}
