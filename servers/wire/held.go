package wire

// Held has messages for which the peer had no room, oldest first.
type Held []heldMessage

type heldMessage struct {
	h    Header
	body []byte
}

// sending is the part of a Conn that sends.
type sending interface {
	Begin(max int) ([]byte, error)
	End(h *Header, body []byte)
}

// Add adds a message. The body may not change afterwards.
func (l *Held) Add(h *Header, body []byte) { *l = append(*l, heldMessage{*h, body}) }

// Send gives messages to the connection as long as the peer has room, and reports whether there was any. The next
// Flush sends them.
func (l *Held) Send(c sending) (worked bool) {
	for len(*l) > 0 {
		m := &(*l)[0]
		b, err := c.Begin(len(m.body))
		if err != nil {
			break // ErrAgain, or the connection has ended, which its owner notices in another way
		}
		c.End(&m.h, append(b, m.body...))
		*m = heldMessage{}
		*l = (*l)[1:]
		worked = true
	}
	return worked
}
