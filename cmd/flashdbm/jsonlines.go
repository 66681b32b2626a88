package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonLines reads records from lines with a JSON object each, as "flashdbm dump --json-lines" and "flashdbm list
// --values --json" write them: one field for the key and one for the value. A field is "key" or "value" with text,
// or that name followed by _hex or _base64. A record that expires also has "expires", with the time as in RFC 3339.
// Empty lines are skipped. Anything else would be lost, and is an error: another field, a repeated field, text that
// is not UTF-8 or has half of a surrogate pair (package encoding/json would replace these characters).
type jsonLines struct {
	in   *bufio.Reader
	line int // number of the last line read, from 1

	expires time.Time // of the last record; zero if it does not expire
}

func newJSONLines(r io.Reader) *jsonLines { return &jsonLines{in: bufio.NewReaderSize(r, 1<<16)} }

// next returns the next record, or io.EOF. The slices belong to the caller.
func (j *jsonLines) next() (key, value []byte, err error) {
	for {
		line, err := j.in.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return nil, nil, err
		}
		if err != nil && err != io.EOF {
			return nil, nil, err
		}
		j.line++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		record, problem := jsonRecord(line)
		if problem != "" {
			return nil, nil, fmt.Errorf("line %d: %s", j.line, problem)
		}
		j.expires = time.Time{}
		if at, expires := record["expires"]; expires {
			if j.expires, err = time.Parse(time.RFC3339, string(at)); err != nil {
				return nil, nil, fmt.Errorf("line %d: %q is not a time such as %s", j.line, at, time.RFC3339)
			}
		}
		return record["key"], record["value"], nil
	}
}

// until returns the time at which the last record expires; the zero time if it
// does not expire.
func (j *jsonLines) until() time.Time { return j.expires }

// long is false: a line is in memory as a whole.
func (j *jsonLines) long() bool { return false }

func (j *jsonLines) Read([]byte) (int, error) { return 0, io.EOF }

const jsonShape = `an object such as {"key": "apple", "value": "red"} is wanted on each line`

// jsonRecord decodes a line, or says what is wrong with it. The record has "key", "value" and perhaps "expires".
func jsonRecord(line []byte) (record map[string][]byte, problem string) {
	if !utf8.Valid(line) {
		return nil, "it is not UTF-8: give such bytes as key_base64 or value_base64"
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	if t, err := decoder.Token(); err != nil || t != json.Delim('{') {
		return nil, jsonShape
	}
	record = map[string][]byte{}
	for decoder.More() {
		t, err := decoder.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, notJSON(err)
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, notJSON(err)
		}
		if len(raw) == 0 || raw[0] != '"' {
			return nil, fmt.Sprintf("%q is not a string", name)
		}
		b, what, problem := jsonField(name, raw)
		if problem != "" {
			return nil, problem
		}
		if _, seen := record[what]; seen {
			return nil, "the " + what + " is there twice"
		}
		record[what] = b
	}
	if _, err := decoder.Token(); err != nil {
		return nil, notJSON(err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, "there is more behind the object; " + jsonShape
	}
	for _, what := range []string{"key", "value"} {
		if _, seen := record[what]; !seen {
			return nil, "there is no " + what + "; " + jsonShape
		}
	}
	return record, ""
}

func notJSON(err error) string {
	if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
		return "the line is cut short; " + jsonShape
	}
	return fmt.Sprintf("%v; %s", err, jsonShape)
}

// jsonField decodes a field, which must be a JSON string. what is the part of the record: "key", "value" or
// "expires".
func jsonField(name string, raw []byte) (b []byte, what, problem string) {
	if at := halfPair(raw); at != "" {
		return nil, "", fmt.Sprintf("%s of %q is half of a character: give such bytes as key_base64 or value_base64", at, name)
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, "", notJSON(err)
	}
	var err error
	switch name {
	case "key", "value", "expires":
		return []byte(text), name, ""
	case "key_hex", "value_hex":
		what = name[:len(name)-len("_hex")]
		b, err = hex.DecodeString(text)
	case "key_base64", "value_base64":
		what = name[:len(name)-len("_base64")]
		b, err = base64.StdEncoding.Strict().DecodeString(text)
	default:
		return nil, "", fmt.Sprintf("there is no place for the field %q: key, key_hex or key_base64, the same of value, and expires are known", name)
	}
	if err != nil {
		return nil, "", fmt.Sprintf("%q: %v", name, err)
	}
	return b, what, ""
}

// halfPair returns the first escape in a JSON string that is half of a surrogate pair, or "".
func halfPair(raw []byte) string {
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if i++; raw[i] != 'u' {
			continue
		}
		first := escaped(raw[i-1:])
		if !utf16.IsSurrogate(first) {
			continue
		}
		if utf16.DecodeRune(first, escaped(raw[min(i+5, len(raw)):])) == utf8.RuneError {
			return string(raw[i-1 : min(i+5, len(raw))])
		}
		i += 10 // skips both halves
	}
	return ""
}

// escaped returns the number of the escape \uXXXX at the beginning of b, or -1.
func escaped(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
