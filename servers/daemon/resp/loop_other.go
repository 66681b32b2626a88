//go:build !linux

package resp

import "net"

type (
	loop struct{}
	raw  struct{ net.Conn }
)

func newLoop(*Server) *loop       { return nil }
func (*loop) adopt(net.Conn) *raw { return nil }
func (*loop) push(*conn)          {}
func (*loop) close()              {}
func (*loop) stop()               {}
