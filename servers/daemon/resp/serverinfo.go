package resp

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func serverCommands() []*command {
	return []*command{
		{name: "command", arity: -1, run: cmdCommand, prompt: true, flags: "loading stale", group: "server", summary: "Tells about commands."},
		{name: "config", arity: -2, run: cmdConfig, prompt: true, flags: "admin", group: "server", summary: "Tells settings."},
		{name: "info", arity: -1, run: cmdInfo, flags: "loading stale", group: "server", summary: "Tells about the server."},
	}
}

func names() []string { return slices.Sorted(maps.Keys(commands)) }

func cmdCommand(c *conn, args [][]byte) {
	if len(args) == 1 {
		c.out.array(len(commands))
		for _, n := range names() {
			c.describe(commands[n])
		}
		return
	}
	switch sub := args[1]; {
	case is(sub, "COUNT") && len(args) == 2:
		c.out.integer(int64(len(commands)))
	case is(sub, "LIST") && len(args) == 2:
		c.out.array(len(commands))
		for _, n := range names() {
			c.out.text(n)
		}
	case is(sub, "INFO"):
		list := named(args[2:])
		c.out.array(len(list))
		for _, n := range list {
			if x := commands[n]; x != nil {
				c.describe(x)
			} else {
				c.out.null()
			}
		}
	case is(sub, "DOCS"):
		list := slices.DeleteFunc(named(args[2:]), func(n string) bool { return commands[n] == nil })
		c.out.dict(len(list))
		for _, n := range list {
			x := commands[n]
			c.out.text(n)
			c.out.dict(3)
			for _, s := range []string{"summary", x.summary, "since", "1.0.0", "group", x.group} {
				c.out.text(s)
			}
		}
	default:
		c.fail(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. COMMAND has COUNT, LIST, INFO and DOCS", sub))
	}
}

// named returns the names that were asked for; all names if none was.
func named(args [][]byte) []string {
	if len(args) == 0 {
		return names()
	}
	var list []string
	for _, a := range args {
		list = append(list, strings.ToLower(string(a[:min(len(a), longestName+1)])))
	}
	return list
}

// describe writes a command's part of the answer to COMMAND.
func (c *conn) describe(x *command) {
	c.out.array(10)
	c.out.text(x.name)
	c.out.integer(int64(x.arity))
	flags := strings.Fields(x.flags)
	c.out.set(len(flags))
	for _, f := range flags {
		c.out.simple(f)
	}
	c.out.integer(int64(x.first))
	c.out.integer(int64(x.last))
	c.out.integer(int64(x.step))
	c.out.set(0)   // categories
	c.out.array(0) // tips
	c.out.array(0) // key specifications
	c.out.array(0) // subcommands
}

// settings has the answers to CONFIG GET. Tools ask for the first ones.
func (s *Server) settings() map[string]string {
	m := map[string]string{
		"save": "", "appendonly": "no", "databases": "1", "timeout": "0",
		"maxclients":         strconv.Itoa(s.o.MaxClients),
		"proto-max-bulk-len": strconv.Itoa(s.o.maxBulk()),
	}
	maps.Copy(m, s.o.Settings)
	return m
}

func cmdConfig(c *conn, args [][]byte) {
	switch {
	case is(args[1], "GET") && len(args) > 2:
		all := c.s.settings()
		var found []string
		for _, n := range slices.Sorted(maps.Keys(all)) {
			if slices.ContainsFunc(args[2:], func(p []byte) bool { return matches([]byte(strings.ToLower(string(p))), []byte(n)) }) {
				found = append(found, n)
			}
		}
		c.out.dict(len(found))
		for _, n := range found {
			c.out.text(n)
			c.out.text(all[n])
		}
	case is(args[1], "RESETSTAT") && len(args) == 2:
		c.out.simple("OK")
	case is(args[1], "SET"):
		c.fail("ERR CONFIG SET is not supported: settings of flashdbmd are flags, environment variables or lines of its configuration file")
	default:
		c.fail(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. CONFIG has GET", args[1]))
	}
}

func cmdInfo(c *conn, args [][]byte) {
	var b strings.Builder
	for _, s := range c.s.sections() {
		wanted := len(args) == 1
		for _, a := range args[1:] {
			wanted = wanted || is(a, strings.ToUpper(s.Name)) || is(a, "ALL") || is(a, "DEFAULT") || is(a, "EVERYTHING")
		}
		if !wanted {
			continue
		}
		fmt.Fprintf(&b, "# %s\r\n", s.Name)
		for _, f := range s.Lines {
			fmt.Fprintf(&b, "%s:%s\r\n", f.Name, f.Value)
		}
		b.WriteString("\r\n")
	}
	c.out.verbatim(b.String())
}

func (s *Server) sections() []Section {
	up := time.Since(s.began)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	did, served := s.Counters(), int64(0)
	for _, n := range did.Commands {
		served += n
	}
	list := []Section{
		{"Server", []Fact{
			{"redis_version", redisVersion}, {"redis_mode", "standalone"}, {"server_name", "flashdbmd"}, {"os", runtime.GOOS + " " + runtime.GOARCH},
			{"process_id", strconv.Itoa(os.Getpid())}, {"uptime_in_seconds", strconv.Itoa(int(up.Seconds()))}, {"uptime_in_days", strconv.Itoa(int(up.Hours() / 24))},
		}},
		{"Clients", []Fact{{"connected_clients", strconv.Itoa(s.Connections())}, {"maxclients", strconv.Itoa(s.o.MaxClients)}}},
		{"Memory", []Fact{{"used_memory", strconv.FormatUint(m.HeapAlloc, 10)}, {"client_buffers", count(did.BufferBytes)}}},
		{"Stats", []Fact{
			{"total_connections_received", count(did.Accepted)}, {"total_commands_processed", count(served)},
			{"total_net_input_bytes", count(did.BytesIn)}, {"total_net_output_bytes", count(did.BytesOut)},
			{"rejected_connections", count(did.Rejected)}, {"total_error_replies", count(did.Errors)},
			{"protocol_errors", count(did.ProtocolErrors)},
		}},
		{"Replication", []Fact{{"role", "master"}, {"connected_slaves", "0"}}},
	}
	if s.o.Facts != nil {
		list = append(list, s.o.Facts()...)
	}
	return list
}

func count(n int64) string { return strconv.FormatInt(n, 10) }
