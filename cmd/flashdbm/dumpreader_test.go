package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// readDump reads a dump to its end and returns its items, which are keys and values alternately.
func readDump(r io.Reader) (items []string, err error) {
	d, err := newDumpReader(r)
	if err != nil {
		return nil, err
	}
	for {
		key, value, err := d.next()
		if err == io.EOF {
			return items, nil
		}
		if err != nil {
			return items, err
		}
		if d.long() {
			var whole bytes.Buffer
			whole.Write(value)
			if _, err := whole.ReadFrom(d); err != nil {
				return items, err
			}
			value = whole.Bytes()
		}
		items = append(items, string(key), string(value))
	}
}

const (
	bytesHeader = "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n"
	printHeader = "VERSION=3\nformat=print\ntype=btree\nHEADER=END\n"
	lmdbHeader  = "VERSION=3\nformat=print\ntype=btree\nmaxreaders=126\nHEADER=END\n"
)

var dumpTable = []struct {
	dump  string
	items string // joined by "|", or
	fails string // part of the error
}{
	{dump: bytesHeader + " \n 61\n 6D6d\n \nDATA=END\n", items: "|a|mm|"},
	{dump: bytesHeader + "DATA=END", items: ""},
	{dump: printHeader + ` a b` + "\n" + ` \\\5C\5c\0a` + "\nDATA=END\n", items: "a b|\\\\\\\n"},
	{dump: printHeader + "  \n  \xff\nDATA=END\n", items: " | \xff"},
	{dump: lmdbHeader + " a\n b\nDATA=END\n", items: "a|b"},
	{dump: "VERSION=3\nformat=print\nduplicates=0\nkeys=1\nh_nelem=5\ndatabase=a=b\nHEADER=END\nDATA=END\n", items: ""},

	{dump: "", fails: "line 1 of the dump: the dump ends without DATA=END"},
	{dump: "VERSION=2\n", fails: `line 1 of the dump: a dump begins with "VERSION=3", not with "VERSION=2"`},
	{dump: "VERSION=3\r\n", fails: `not with "VERSION=3\r"`},
	{dump: "VERSION=3\nformat=csv\n", fails: `line 2 of the dump: the format "csv" is unknown`},
	{dump: "VERSION=3\ntype=btree\nHEADER=END\n", fails: "line 3 of the dump: the header has no format"},
	{dump: "VERSION=3\nformat=print\n", fails: "line 3 of the dump: the dump ends"},
	{dump: "VERSION=3\nnonsense\n", fails: `"nonsense" is not a header line`},
	{dump: "VERSION=3\ntype=queue\n", fails: "record numbers"},
	{dump: "VERSION=3\nkeys=0\n", fails: "holds no keys"},
	{dump: "VERSION=3\ndupsort=1\n", fails: "dupsort=1"},
	{dump: "VERSION=3\n" + strings.Repeat("a=b\n", 200), fails: "does not end within 100 lines"},
	{dump: strings.Repeat("x", 200_000), fails: "longer than 4096 bytes"},
	{dump: "VERSION=3\ndatabase=" + strings.Repeat("x", 5000) + "\n", fails: "line 2 of the dump: it is longer than 4096 bytes"},

	{dump: bytesHeader, fails: "line 5 of the dump: the dump ends"},
	{dump: bytesHeader + " 61", fails: "the dump ends"},
	{dump: bytesHeader + " 61\n", fails: "line 6 of the dump: the dump ends"},
	{dump: bytesHeader + " 61\n 62", fails: "the dump ends"},
	{dump: bytesHeader + " 61\n 62\n", fails: "line 7 of the dump: the dump ends"},
	{dump: bytesHeader + " 61\n 62\nDATA", fails: "begins with a space"},
	{dump: bytesHeader + " 61\nDATA=END\n", fails: "line 6 of the dump: the last key has no value"},
	{dump: bytesHeader + "61\n 62\nDATA=END\n", fails: "line 5 of the dump: a line of data begins with a space"},
	{dump: bytesHeader + "\n", fails: "begins with a space"},
	{dump: bytesHeader + " 6\n 62\nDATA=END\n", fails: "line 5 of the dump: the line ends in the middle of a byte"},
	{dump: bytesHeader + " 61\n 6g\nDATA=END\n", fails: "line 6 of the dump: 'g' is not a hexadecimal digit"},
	{dump: bytesHeader + " 61\r\n 62\r\nDATA=END\n", fails: `'\r' is not a hexadecimal digit`},
	{dump: printHeader + ` a\` + "\n b\nDATA=END\n", fails: "middle of a byte"},
	{dump: printHeader + ` a\0` + "\n b\nDATA=END\n", fails: "middle of a byte"},
	{dump: printHeader + ` a\x00` + "\n b\nDATA=END\n", fails: "'x' after a backslash"},
	{dump: lmdbHeader + ` a\5c` + "\n b\nDATA=END\n", fails: "without -p"},
	{dump: bytesHeader + " 61\n 62\n 61\n 63\nDATA=END\n", fails: "line 7 of the dump: the key a is there twice"},
	{dump: printHeader + " \n b\n \n c\nDATA=END\n", fails: `the key "" is there twice`},
	{dump: bytesHeader + " " + strings.Repeat("00", maxKeyBytes+1) + "\n 62\nDATA=END\n", fails: "the key is longer than the 64.0 KiB"},

	{dump: bytesHeader + "DATA=END\n" + bytesHeader + "DATA=END\n", fails: "line 6 of the dump: another database follows the first one"},
	{dump: "VERSION=3\nformat=print\ndatabase=x\nHEADER=END\nDATA=END\n" + bytesHeader, fails: `follows "x"`},
	{dump: bytesHeader + "DATA=END\nmore\n", fails: `"more" follows the end`},
	{dump: bytesHeader + "DATA=END\n\n", fails: `"" follows the end`},
}

func TestDumpReader(t *testing.T) {
	for _, test := range dumpTable {
		for name, r := range map[string]io.Reader{
			"whole":        strings.NewReader(test.dump),
			"byte by byte": iotest.OneByteReader(strings.NewReader(test.dump)),
		} {
			items, err := readDump(r)
			if test.fails != "" {
				var refused *dumpError
				require.ErrorAs(t, err, &refused, "%s: %.200q", name, test.dump)
				require.Contains(t, err.Error(), test.fails, "%s: %.200q", name, test.dump)
				continue
			}
			require.NoError(t, err, "%s: %.200q", name, test.dump)
			require.Equal(t, test.items, strings.Join(items, "|"))
		}
	}
}

// An input that fails is not reported as a damaged dump, wherever it fails.
func TestDumpReaderInputError(t *testing.T) {
	broken := errors.New("input/output error")
	dump := printHeader + ` key\0a` + "\n value\nDATA=END\n"
	for n := range len(dump) + 1 {
		_, err := readDump(io.MultiReader(strings.NewReader(dump[:n]), iotest.ErrReader(broken)))
		require.ErrorIs(t, err, broken, "after %d bytes", n)
	}
}

// After its end a reader stays at its end.
func TestDumpReaderStaysAtEnd(t *testing.T) {
	d, err := newDumpReader(strings.NewReader(bytesHeader + "DATA=END\n"))
	require.NoError(t, err)
	for range 3 {
		_, _, err = d.next()
		require.Equal(t, io.EOF, err)
	}
}

// A line that does not end is given up at the size limit of its item.
func TestDumpReaderBoundsMemory(t *testing.T) {
	d, err := newDumpReader(io.MultiReader(strings.NewReader(bytesHeader+" "), endlessZeros{}))
	require.NoError(t, err)
	_, _, err = d.next()
	require.ErrorContains(t, err, "the key is longer")
	require.Less(t, cap(d.key), 8*maxKeyBytes)
}

type endlessZeros struct{}

func (endlessZeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// FuzzDumpReader: any input is a dump or an error, and the records read from a dump can be dumped again and read
// back, in both forms.
func FuzzDumpReader(f *testing.F) {
	for _, test := range dumpTable {
		if len(test.dump) < 1000 {
			f.Add([]byte(test.dump))
		}
	}
	f.Fuzz(func(t *testing.T, dump []byte) {
		items, err := readDump(bytes.NewReader(dump))
		if err != nil {
			return
		}
		for _, print := range []bool{false, true} {
			again, err := readDump(bytes.NewReader(writeDump(t, print, items)))
			require.NoError(t, err)
			require.Equal(t, items, again)
		}
	})
}

// FuzzDumpWriter: any record survives a dump, and its lines hold printable
// characters only.
func FuzzDumpWriter(f *testing.F) {
	f.Add("", "")
	f.Add("a\\", "\x00\n\xff")
	f.Fuzz(func(t *testing.T, key, value string) {
		for _, print := range []bool{false, true} {
			dump := writeDump(t, print, []string{key, value})
			require.Equal(t, 7, bytes.Count(dump, []byte("\n")))
			require.True(t, printable(bytes.ReplaceAll(dump, []byte("\n"), nil), func(r rune) bool { return r >= ' ' && r <= '~' }))
			items, err := readDump(bytes.NewReader(dump))
			if len(key) > maxKeyBytes {
				require.Error(t, err)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, []string{key, value}, items)
		}
	})
}

func writeDump(t *testing.T, print bool, items []string) []byte {
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	d := newDumpWriter(w, print, "")
	for i := 0; i < len(items); i += 2 {
		require.NoError(t, d.record([]byte(items[i]), strings.NewReader(items[i+1])))
	}
	require.NoError(t, d.end())
	require.NoError(t, w.Flush())
	return out.Bytes()
}
