package wire

// Line is the serving end of a connection within one process, without encoded messages and without a Group.
// Only the goroutine that is serving uses it; Begin, End, Flush and Receive are as in Conn.
type Line interface {
	Begin(max int) ([]byte, error)
	End(h *Header, body []byte)
	Flush()
	Receive() (Message, bool)
	// Waiting reports whether Receive would return something.
	Waiting() bool
	Err() error
	Close() error
}
