package vfs

import (
	"io"
	"os"
)

// outStep is how many bytes InSteps hands to the device at a time. Larger: a sync of another file waits longer.
// Smaller: more calls.
const outStep = 256 << 10

// InSteps returns a writer that writes to f from its present position on. It gives the written bytes to the device in
// steps, and waits for each step. A large file that is only synced at its end gives the device all of it at once, and
// syncs of other files on the same device wait for that: while backups were synced in that way, p99.9 of commits was 2.0
// to 3.2 times that without backups. If f is no regular file, InSteps returns f.
//
// A step that fails is an error of Write: the system may not report it again at the next sync.
func InSteps(f *os.File) io.Writer {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return f
	}
	at, err := f.Seek(0, io.SeekCurrent)
	conn, cerr := f.SyscallConn()
	if err != nil || cerr != nil {
		return f
	}
	return &stepWriter{f: osFile{f: f, conn: conn}, at: at, out: at}
}

type stepWriter struct {
	f       osFile
	at, out int64 // the end of what was written, and of what the device has been given
}

func (w *stepWriter) Write(b []byte) (n int, err error) {
	n, err = w.f.f.Write(b)
	w.at += int64(n)
	for err == nil && w.at-w.out >= outStep {
		err = w.f.WriteOut(w.out, outStep, true)
		w.out += outStep
	}
	return n, err
}
