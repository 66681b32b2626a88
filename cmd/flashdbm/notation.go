package main

import (
	"encoding/base64"
	"encoding/hex"
	"io"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// notation is the form of keys and values on the command line and in results: text (the zero value), or hexadecimal
// or base64.
type notation struct {
	hex, base64 bool
}

func (n *notation) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&n.hex, "hex", false, "keys and values are written in hexadecimal")
	cmd.Flags().BoolVar(&n.base64, "base64", false, "keys and values are written in base64")
	cmd.MarkFlagsMutuallyExclusive("hex", "base64")
}

// parse decodes an argument. what names it in the error.
func (n *notation) parse(what, arg string) ([]byte, error) {
	switch {
	case n.hex:
		b, err := hex.DecodeString(arg)
		if err != nil {
			return nil, usagef("the %s %q is not hexadecimal: give two digits for each byte, for example 0aff", what, arg)
		}
		return b, nil
	case n.base64:
		b, err := base64.StdEncoding.Strict().DecodeString(arg)
		if err != nil {
			return nil, usagef("the %s %q is not base64: give standard base64 with its padding, for example Cv8=", what, arg)
		}
		return b, nil
	}
	return []byte(arg), nil
}

// format returns b on one line. Text that would be ambiguous is quoted: see quoted.
func (n *notation) format(b []byte) string {
	switch {
	case n.hex:
		return hex.EncodeToString(b)
	case n.base64:
		return base64.StdEncoding.EncodeToString(b)
	}
	return quoted(b)
}

// encoder returns a writer that encodes in the notation and writes to w, without a line end. Close completes
// the output, and does not close w.
func (n *notation) encoder(w io.Writer) io.WriteCloser {
	switch {
	case n.hex:
		return nopCloser{hex.NewEncoder(w)}
	case n.base64:
		return base64.NewEncoder(base64.StdEncoding, w)
	}
	return nopCloser{w}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// addTo stores b in a JSON object under a name that shows the encoding: name for text, otherwise name_hex
// or name_base64. A JSON string cannot hold bytes that are not UTF-8, so without a flag these become
// base64.
func (n *notation) addTo(object map[string]any, name string, b []byte) {
	switch {
	case n.hex:
		object[name+"_hex"] = hex.EncodeToString(b)
	case n.base64, !utf8.Valid(b):
		object[name+"_base64"] = base64.StdEncoding.EncodeToString(b)
	default:
		object[name] = string(b)
	}
}
