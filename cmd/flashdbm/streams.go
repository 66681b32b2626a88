package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// standardStream is the file name that stands for standard input or output.
const standardStream = "-"

// outputBufferBytes is the buffer of output files: large enough that a dump needs few system calls.
const outputBufferBytes = 1 << 16

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool {
	return term.IsTerminal(int(f.Fd()))
}

// withOutput runs fn with a buffered writer to the named file, or to standard output for "" and "-". The file must
// not be the database that is read. It is synced: when the command reports success, the result survives a power cut
// like a database.
func (p *program) withOutput(database, name string, fn func(w *bufio.Writer) error) (err error) {
	file := p.stdout
	toStdout := name == "" || name == standardStream
	if err := p.refuseDatabase(database, name, toStdout); err != nil {
		return err
	}
	if !toStdout {
		file, err = os.Create(name)
		if err != nil {
			return err
		}
		defer func() {
			if err == nil {
				err = syncFile(file)
			}
			if err = errors.Join(err, file.Close()); err != nil {
				err = &incompleteError{name, err}
			}
		}()
	}
	w := bufio.NewWriterSize(file, outputBufferBytes)
	if err := fn(w); err != nil {
		return err
	}
	return w.Flush()
}

// refuseDatabase returns an error if the output is the database itself, under any name.
func (p *program) refuseDatabase(database, name string, toStdout bool) error {
	var output os.FileInfo
	var err error
	if toStdout {
		name = "standard output"
		output, err = p.stdout.Stat()
	} else {
		output, err = os.Stat(name)
	}
	if err != nil { // the file does not exist yet, or its creation will return the error
		return nil
	}
	if input, err := os.Stat(database); err == nil && os.SameFile(input, output) {
		return usagef("%s is the database itself: give another file for the output", name)
	}
	return nil
}

// syncFile syncs a regular file; a device or a named pipe has nothing to sync.
func syncFile(f *os.File) error {
	if status, err := f.Stat(); err != nil || !status.Mode().IsRegular() {
		return err
	}
	return f.Sync()
}

// withInput runs fn with the named file, or standard input for "" and "-".
func (p *program) withInput(name string, fn func(file *os.File) error) error {
	if name == "" || name == standardStream {
		if isTerminal(p.stdin) {
			fmt.Fprintln(p.stderr, "reading from the terminal; end with Ctrl-D on a line of its own")
		}
		return fn(p.stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return fn(file)
}

// printJSON writes v and a line end to w. It does not escape the characters that matter only in HTML.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}
