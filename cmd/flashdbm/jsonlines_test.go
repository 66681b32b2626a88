package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"flashdbm/dbm"

	"github.com/stretchr/testify/require"
)

// TestJSONLinesRoundTrip: load reads what dump and list write, whatever bytes the records have.
func TestJSONLinesRoundTrip(t *testing.T) {
	path := newPath(t)
	db, err := dbm.Open(path, nil)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	require.NoError(t, db.Update(func(tx *dbm.Tx) error {
		for i := range 300 {
			key := make([]byte, rng.IntN(20))
			value := make([]byte, rng.IntN(200))
			for j := range key {
				key[j] = byte(rng.IntN(256))
			}
			for j := range value {
				value[j] = `ab"\<> é`[rng.IntN(9)]
			}
			if err := tx.Put(key, value); err != nil {
				return err
			}
			if err := tx.Put(fmt.Appendf(nil, "text %d \u2028 \U0001F34E\n", i), []byte("\ufffd\x00")); err != nil {
				return err
			}
		}
		return tx.Put([]byte("long"), bytes.Repeat([]byte("0123456789abcdef"), 1<<17))
	}))
	require.NoError(t, db.Close())
	want := succeed(t, "dump", path)
	for _, args := range [][]string{{"dump", path, "--json-lines"}, {"list", path, "--values", "--json"}, {"list", path, "--values", "--json", "--hex"}} {
		lines := succeed(t, args...)
		for line := range strings.Lines(lines) {
			require.True(t, json.Valid([]byte(line)))
			require.True(t, utf8.ValidString(line))
		}
		copied := newPath(t)
		require.Empty(t, succeedWith(t, lines, "load", copied, "--json-lines"))
		require.Equal(t, want, succeed(t, "dump", copied), "%q", args)
	}
}

// TestJSONLinesRefused: a line that cannot be loaded exactly is refused with its number. If the input is a file,
// nothing is stored then.
func TestJSONLinesRefused(t *testing.T) {
	for line, says := range map[string]string{
		`{"key": "a"}`:                                  "no value",
		`{"value": "a"}`:                                "no key",
		`{"key": "a", "value": "b"`:                     "cut short",
		`{"key": "a", "value": "b`:                      "cut short",
		`{"key": "a", "value": 5}`:                      `"value" is not a string`,
		`{"key": "a", "value": null}`:                   `"value" is not a string`,
		`{"key": "a", "value": {"b": "c"}}`:             `"value" is not a string`,
		`{"key": "a", "value": "b", "ttl": "5"}`:        `no place for the field "ttl"`,
		`{"key": "a", "value": "b", "expires": "soon"}`: `"soon" is not a time`,
		`{"key": "a", "value": "b", "key": "c"}`:        "the key is there twice",
		`{"key": "a", "value": "b", "value_hex": "00"}`: "the value is there twice",
		`{"key": "a", "value": "b"} {}`:                 "more behind the object",
		`["a", "b"]`:                                    "an object such as",
		`a,b`:                                           "an object such as",
		`VERSION=3`:                                     "an object such as",
		`{"key": "a", "value_hex": "0"}`:                "odd length",
		`{"key": "a", "value_hex": "0g"}`:               "invalid byte",
		`{"key": "a", "value_base64": "AA"}`:            "illegal base64",
		`{"key": "a", "value": "` + "\xff" + `"}`:       "not UTF-8",
		`{"key": "a", "value": "\ud800"}`:               `\ud800 of "value" is half of a character`,
		`{"key": "\udc00\ud83c", "value": "a"}`:         "half of a character",
		`{"key": "a", "value": "x\ud83cx\udf4e"}`:       "half of a character",
		`{"key": "a", "value": "\x"}`:                   "invalid character",
	} {
		path := filepath.Join(t.TempDir(), "none.fdbm")
		file := filepath.Join(t.TempDir(), "lines")
		require.NoError(t, os.WriteFile(file, []byte("{\"key\": \"first\", \"value\": \"\"}\n\n"+line+"\n"), 0o600))
		_, _, err := records(strings.NewReader("\n" + line))
		require.ErrorContains(t, err, "line 2: ", line)
		require.ErrorContains(t, err, says, line)
		if strings.Contains(says, "twice") { // it is enough to run the command for one of them
			fail(t, exitError, []string{"line 3: ", says}, "load", path, "--json-lines", "--file", file)
			require.NoFileExists(t, path)
		}
	}
}

// records reads all records.
func records(r io.Reader) (keys, values []string, err error) {
	for lines := newJSONLines(r); ; {
		key, value, err := lines.next()
		if err == io.EOF {
			return keys, values, nil
		}
		if err != nil {
			return keys, values, err
		}
		keys, values = append(keys, string(key)), append(values, string(value))
	}
}

func TestJSONLinesOfOthers(t *testing.T) {
	keys, values, err := records(strings.NewReader("\r\n{\"value\":\"\\ud83c\\udf4e \\u00e9\\/\\\\ud800\", \"key_hex\":\"00fF\"}\r\n  {\"key_base64\":\"AP8=\",\"value\":\"\"}"))
	require.NoError(t, err)
	require.Equal(t, []string{"\x00\xff", "\x00\xff"}, keys)
	require.Equal(t, []string{"\U0001F34E é/\\ud800", ""}, values)
}

// FuzzJSONLines: a line is either refused or read as package encoding/json reads it, and nothing is lost when it is
// written again.
func FuzzJSONLines(f *testing.F) {
	f.Add([]byte(`{"key": "a", "value": "b"}`))
	f.Add([]byte(`{"key_hex": "00", "value_base64": "AA=="}`))
	f.Add([]byte(`{"key": "\ud83c\udf4e", "value": "\ud83c"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		record, problem := jsonRecord(line)
		if problem != "" || record["expires"] != nil {
			return
		}
		key, value := record["key"], record["value"]
		var fields map[string]string
		require.NoError(t, json.Unmarshal(line, &fields))
		require.Len(t, fields, 2)
		if text, ok := fields["key"]; ok {
			require.Equal(t, text, string(key))
			require.LessOrEqual(t, strings.Count(text, "\ufffd"), bytes.Count(line, []byte("\ufffd"))+strings.Count(strings.ToLower(string(line)), `\ufffd`))
		}
		object := map[string]any{}
		var n notation
		n.addTo(object, "key", key)
		n.addTo(object, "value", value)
		again, err := json.Marshal(object)
		require.NoError(t, err)
		record, problem = jsonRecord(again)
		require.Empty(t, problem)
		require.True(t, bytes.Equal(key, record["key"]) && bytes.Equal(value, record["value"]))
	})
}
