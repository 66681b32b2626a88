package wire

// Line is the serving end of a connection within one process: there are no messages on the way, and no Group. Whoever serves uses it, one
// goroutine at a time; for Begin, End, Flush and Receive see Conn.
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
