package resp

import (
	"fmt"
	"net"
	"strings"
	"time"
)

// redisVersion is the version of Redis that has these commands, for clients that choose by version.
const redisVersion = "7.2.0"

func connectionCommands() []*command {
	list := []*command{
		{name: "ping", arity: -1, run: cmdPing, summary: "Returns PONG or its argument."},
		{name: "echo", arity: 2, run: func(c *conn, args [][]byte) { c.out.bulk(args[1]) }, summary: "Returns its argument."},
		{name: "hello", arity: -1, run: cmdHello, open: true, summary: "Chooses the protocol and authenticates."},
		{name: "auth", arity: -2, run: cmdAuth, open: true, summary: "Authenticates the connection."},
		{name: "select", arity: 2, run: cmdSelect, summary: "Chooses the database, which is 0."},
		{name: "client", arity: -2, run: cmdClient, summary: "Tells about connections."},
		{name: "quit", arity: -1, run: cmdQuit, open: true, summary: "Ends the connection."},
	}
	for _, x := range list {
		x.flags, x.group, x.prompt = "fast", "connection", true
	}
	return list
}

func cmdPing(c *conn, args [][]byte) {
	switch len(args) {
	case 1:
		c.out.simple("PONG")
	case 2:
		c.out.bulk(args[1])
	default:
		c.fail("ERR wrong number of arguments for 'ping' command")
	}
}

func cmdQuit(c *conn, _ [][]byte) {
	c.out.simple("OK")
	c.quit = true
}

func cmdSelect(c *conn, args [][]byte) {
	switch n, ok := parseInt(args[1]); {
	case !ok:
		c.fail(errNotInteger)
	case n != 0:
		c.fail("ERR DB index is out of range")
	default:
		c.out.simple("OK")
	}
}

func cmdAuth(c *conn, args [][]byte) {
	user, password := []byte("default"), args[len(args)-1]
	if len(args) == 3 {
		user = args[1]
	}
	switch {
	case len(args) > 3:
		c.fail(errSyntax)
	case c.s.o.Password == "" && len(args) == 2:
		c.fail("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	case c.s.o.Password == "" && string(user) == "default":
		c.out.simple("OK") // Redis then takes any password
	case c.authenticate(user, password):
		c.out.simple("OK")
	default:
		c.fail(errWrongPass)
	}
}

func cmdHello(c *conn, args [][]byte) {
	v3 := c.out.v3
	if len(args) > 1 {
		n, ok := parseInt(args[1])
		switch {
		case !ok:
			c.fail("ERR Protocol version is not an integer or out of range")
			return
		case n != 2 && n != 3:
			c.fail("NOPROTO unsupported protocol version")
			return
		}
		v3 = n == 3
	}
	var name []byte
	for i := 2; i < len(args); {
		switch {
		case is(args[i], "AUTH") && i+2 < len(args):
			if c.s.o.Password == "" && string(args[i+1]) == "default" {
				c.known = true
			} else if !c.authenticate(args[i+1], args[i+2]) {
				c.fail(errWrongPass)
				return
			}
			i += 3
		case is(args[i], "SETNAME") && i+1 < len(args):
			name = args[i+1]
			if !nameAllowed(name) {
				c.fail(errName)
				return
			}
			i += 2
		default:
			c.fail(fmt.Sprintf("ERR Syntax error in HELLO option '%.128s'", args[i]))
			return
		}
	}
	if !c.known {
		c.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	if name != nil {
		c.setName(name)
	}
	c.out.v3 = v3
	c.out.dict(7)
	c.out.text("server")
	c.out.text("redis")
	c.out.text("version")
	c.out.text(redisVersion)
	c.out.text("proto")
	c.out.integer(c.protocol())
	c.out.text("id")
	c.out.integer(c.id)
	c.out.text("mode")
	c.out.text("standalone")
	c.out.text("role")
	c.out.text("master")
	c.out.text("modules")
	c.out.array(0)
}

func (c *conn) protocol() int64 {
	if c.out.v3 {
		return 3
	}
	return 2
}

const (
	errName = "ERR Client names cannot contain spaces, newlines or special characters."
	maxName = 256 // bytes of the name of a connection
)

func nameAllowed(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return len(name) <= maxName
}

func (c *conn) setName(name []byte) {
	s := string(name)
	c.name.Store(&s)
}

func cmdClient(c *conn, args [][]byte) {
	sub := strings.ToUpper(string(args[1][:min(len(args[1]), 32)]))
	switch {
	case sub == "ID" && len(args) == 2:
		c.out.integer(c.id)
	case sub == "GETNAME" && len(args) == 2:
		if name := *c.name.Load(); name != "" {
			c.out.text(name)
		} else {
			c.out.null()
		}
	case sub == "SETNAME" && len(args) == 3:
		if !nameAllowed(args[2]) {
			c.fail(errName)
			return
		}
		c.setName(args[2])
		c.out.simple("OK")
	case sub == "SETINFO" && len(args) == 4:
		if !nameAllowed(args[3]) || (!is(args[2], "LIB-NAME") && !is(args[2], "LIB-VER")) {
			c.fail("ERR CLIENT SETINFO takes LIB-NAME or LIB-VER, and a word")
			return
		}
		c.out.simple("OK")
	case (sub == "NO-EVICT" || sub == "NO-TOUCH") && len(args) == 3:
		c.out.simple("OK") // nothing here depends on the setting
	case sub == "INFO" && len(args) == 2:
		c.out.verbatim(c.line(c.net) + "\n")
	case sub == "LIST" && len(args) == 2:
		c.out.verbatim(c.s.clientList())
	default:
		c.fail(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. CLIENT has ID, GETNAME, SETNAME, SETINFO, NO-EVICT, NO-TOUCH, INFO and LIST", args[1]))
	}
}

// line describes the connection in CLIENT LIST. Any goroutine may call it; nc is c.net.
func (c *conn) line(nc net.Conn) string {
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d db=0 user=default", c.id, nc.RemoteAddr(), nc.LocalAddr(), *c.name.Load(), int(time.Since(c.began).Seconds()))
}

// clientList holds no lock while it writes the list, which takes long if there are many connections.
func (s *Server) clientList() string {
	s.mu.Lock()
	list := make(map[*conn]net.Conn, len(s.conns))
	for c := range s.conns {
		list[c] = c.net
	}
	s.mu.Unlock()
	var b strings.Builder
	for c, nc := range list {
		b.WriteString(c.line(nc) + "\n")
	}
	return b.String()
}
