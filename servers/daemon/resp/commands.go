package resp

import (
	"errors"
	"fmt"
	"strings"

	"flashdbm/servers/hydra"
)

// maxBulk is the longest argument, a value. Its command has a key and a few words as well.
func (o *Config) maxBulk() int {
	return min(hydra.MaxLarge, max(hydra.MaxValue, o.MaxCommand-hydra.MaxKey-1024))
}

// A command is the description of a command.
type command struct {
	name    string // in lower case
	arity   int    // arguments with the name; negative: at least as many
	run     func(c *conn, args [][]byte)
	group   string
	summary string
	flags   string // of COMMAND, separated by blanks
	first   int    // of the keys among the arguments
	last    int
	step    int
	queued  bool // run only adds the command to the batch
	prompt  bool // run neither uses the store nor answers with much
	open    bool // allowed before AUTH, too
	index   int  // of the command's counter
}

const longestName = 16

var commands = map[string]*command{}

func register(list ...*command) {
	for _, x := range list {
		x.index = len(commands)
		commands[x.name] = x
	}
}

func init() {
	register(stringCommands()...)
	register(keyCommands()...)
	register(connectionCommands()...)
	register(serverCommands()...)
}

// Errors in the words of Redis, which clients compare.
const (
	errSyntax     = "ERR syntax error"
	errNotInteger = "ERR value is not an integer or out of range"
	errNoAuth     = "NOAUTH Authentication required."
	errWrongPass  = "WRONGPASS invalid username-password pair or user is disabled."
	errOverflow   = "ERR increment or decrement would overflow"
	errTooLong    = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
)

// find returns the command, nil if there is none of that name.
func (c *conn) find(args [][]byte) (x *command) {
	var lower [longestName]byte
	if len(args[0]) <= longestName {
		for i, b := range args[0] {
			if 'A' <= b && b <= 'Z' {
				b += 'a' - 'A'
			}
			lower[i] = b
		}
		x = commands[string(lower[:len(args[0])])]
	}
	return x
}

// do serves a command or adds it to the batch.
func (c *conn) do(args [][]byte) {
	x := c.find(args)
	if x == nil || !x.queued {
		c.runBatch()
	}
	switch {
	case x == nil && fromBrowser(args[0]):
		c.s.stats.broken.Add(1)
		c.quit = true // without an answer
	case !c.known && (x == nil || !x.open):
		c.fail(errNoAuth)
	case x == nil:
		c.fail(fmt.Sprintf("ERR unknown command '%.128s': flashdbmd serves strings and keys, see COMMAND LIST", args[0]))
	case (x.arity > 0 && len(args) != x.arity) || (x.arity < 0 && len(args) < -x.arity):
		c.runBatch()
		c.fail(fmt.Sprintf("ERR wrong number of arguments for '%s' command", x.name))
	default:
		c.s.calls[x.index].Add(1)
		x.run(c, args)
	}
}

// fromBrowser reports whether a command is a line of a request by HTTP. A web page can make a browser on this machine
// send such a request to any port, and the lines of its body would be commands. As Redis does, the server ends the
// connection: all that comes before is POST or Host, or is a command that takes no HTTP/1.1.
func fromBrowser(name []byte) bool { return is(name, "POST") || is(name, "HOST:") }

// fail answers with an error, after the answers of the batch.
func (c *conn) fail(s string) {
	c.runBatch()
	c.s.stats.failed.Add(1)
	c.out.fail(s)
}

// storeErrors are the answers to errors of the store. go-redis and other clients try again after TRYAGAIN, which
// means that nothing was changed.
var storeErrors = []struct {
	err  error
	text string
}{
	{hydra.ErrUnknownOutcome, "ERR the outcome is unknown: the write may have been applied, or not"},
	{hydra.ErrUnavailable, "TRYAGAIN the key's shard does not answer; nothing was changed"},
	{hydra.ErrClosed, "ERR the server is shutting down"},
	{hydra.ErrFull, "OOM command not allowed when used memory > 'maxmemory'."},
	{hydra.ErrTooLarge, errTooLong},
	{hydra.ErrNotNumber, errNotInteger},
	{hydra.ErrOverflow, errOverflow},
}

// storeError answers with an error of the store. It does not touch the batch.
func (c *conn) storeError(err error) {
	c.s.stats.failed.Add(1)
	for _, e := range storeErrors {
		if errors.Is(err, e.err) {
			c.out.fail(e.text)
			return
		}
	}
	c.out.fail("ERR " + err.Error())
}

// is compares an argument with a word in upper case.
func is(arg []byte, word string) bool {
	return len(arg) == len(word) && strings.EqualFold(string(arg), word)
}
