package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/shard"
)

// config has the settings of serve.
type config struct {
	dir        string
	table      string // hydra or ramp
	shards     int
	durability shard.Durability
	memory     int64 // bytes of items in all shards together; 0: no limit
	evict      bool
	maxFile    int64 // bytes of a shard's file; 0: no limit
	socket     string
	tcp        string
	advertise  string // the address of tcp that other nodes and clients are given
	verbs      string
	resp       string
	http       string
	password   string
	cert, key  string

	// The settings of a node of a cluster.
	etcd      []string // empty: the node is alone
	cluster   string
	node      string
	replicas  int
	strict    bool
	minInSync int
}

// modes are the durabilities by name.
var modes = map[string]shard.Durability{"memory": shard.Memory, "async": shard.Async, "sync": shard.Sync}

// parse reads the settings of serve from the command line, the environment, and the file that one of these names.
// Every error about a setting wraps errUsage and names the flag, the variable, or the line of the file.
func parse(args []string, env func(string) (string, bool), out io.Writer) (*config, error) {
	c := &config{}
	var mode, full string
	var megabytes, fileMegabytes int64
	f := flag.NewFlagSet("flashdbmd serve", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	var file string
	f.StringVar(&file, "config", "", "file in TOML with these settings, such as durability = \"async\"; flags and the environment come first")
	f.StringVar(&c.dir, "dir", "", "directory of the database; may be empty with --durability memory")
	f.StringVar(&c.table, "table", "hydra", "hydra: each key by itself, expiry, counters; ramp: MSET and MGET are atomic transactions of several keys, programs use the client library flashdbm/servers/ramp")
	f.IntVar(&c.shards, "shards", 0, "threads that own a part of the keys each; 0: as many as the database has, 1 if it is new")
	f.StringVar(&mode, "durability", "sync", "an acknowledged write survives: sync a power cut, async the end of the process up to the last second, memory nothing")
	f.Int64Var(&megabytes, "memory", 0, "MiB of records in memory, of all shards together; what does not fit is read from the files. 0: no limit")
	f.StringVar(&full, "full", "refuse", "memory mode, when --memory is full: refuse writes, or evict what was not used for long")
	f.Int64Var(&fileMegabytes, "max-file", 0, "MiB that the file of a shard may grow to; 0: no limit")
	f.StringVar(&c.socket, "socket", "", "path of the socket for programs of this machine that use the client library; default: node.sock in --dir")
	f.StringVar(&c.tcp, "tcp", "", "address for programs of other machines that use the client library; needs --password")
	f.StringVar(&c.verbs, "verbs", "", "address on an RDMA device, for example 10.0.0.1:7401, for programs that use the client library and for the other nodes of a cluster, which all need one then; needs --password, and a build with the tag verbs")
	f.StringVar(&c.advertise, "advertise", "", "address at which other machines reach --tcp, if that is another one; a node of a cluster sends it to clients and nodes")
	f.StringVar(&c.resp, "resp", "127.0.0.1:6380", "address for clients of Redis; one that is not of this machine needs --password")
	f.StringVar(&c.http, "http", "", "address for /metrics, /healthz and /debug/pprof/; empty: none")
	f.StringVar(&c.password, "password", "", "what clients of Redis have to give with AUTH; better set as FLASHDBMD_PASSWORD, as others see command lines")
	var etcd, acks string
	f.StringVar(&etcd, "etcd", "", "endpoints of etcd, separated by commas: this node is one of a cluster. Empty: it is alone")
	f.StringVar(&c.cluster, "cluster", "flashdbm", "name of the cluster; one etcd may have several")
	f.StringVar(&c.node, "node", "", "name of this node in the cluster, which it keeps; default: the name of the machine")
	f.IntVar(&c.replicas, "replicas", 3, "copies of each shard, the primary's included; the first node of a cluster decides for all")
	f.StringVar(&acks, "acks", "relaxed", "memory and async: a write is acknowledged once it is in the memory of all copies (relaxed), or once all have applied it (strict)")
	f.IntVar(&c.minInSync, "min-insync", 0, "copies that must be there, or writes are refused; 0: most of --replicas")
	f.StringVar(&c.cert, "tls-cert", "", "PEM file of the certificate for clients of Redis; with --tls-key")
	f.StringVar(&c.key, "tls-key", "", "PEM file of its key")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(out, "Settings of flashdbmd serve. Each is a flag, a variable (--dir is FLASHDBMD_DIR), or a line of the file that --config\nnames (dir = \"/var/lib/flashdbm\"). A flag overrides the environment, and the environment overrides the file.\n\n")
			f.SetOutput(out)
			f.PrintDefaults()
			return nil, err
		}
		return nil, fmt.Errorf("%w: see flashdbmd serve --help (%w)", err, errUsage)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a setting: %w", f.Arg(0), errUsage)
	}
	set := &settings{flags: f, origin: map[string]string{}}
	set.fromFlags()
	if err := set.fromEnvironment(env); err != nil {
		return nil, err
	}
	if file != "" {
		if err := set.fromFile(file); err != nil {
			return nil, err
		}
	}
	wrong := set.wrong
	var ok bool
	if c.durability, ok = modes[mode]; !ok {
		return nil, wrong("durability", "%q is none of memory, async and sync", mode)
	}
	if c.table != "hydra" && c.table != "ramp" {
		return nil, wrong("table", "%q is none of hydra and ramp", c.table)
	}
	switch c.evict = full == "evict"; {
	case !c.evict && full != "refuse":
		return nil, wrong("full", "%q is none of refuse and evict", full)
	case c.evict && (c.durability != shard.Memory || c.table == "ramp"):
		return nil, wrong("full", "evict is for --durability memory and a table of kind hydra: with files, what does not fit in memory is read from them")
	}
	for _, x := range []struct {
		setting string
		n, most int64
	}{{"shards", int64(c.shards), protocol.MaxShards}, {"memory", megabytes, 1 << 40}, {"max-file", fileMegabytes, 1 << 40}} {
		if x.n < 0 || x.n > x.most {
			return nil, wrong(x.setting, "%d is out of range; want 0 to %d", x.n, x.most)
		}
	}
	c.memory, c.maxFile = megabytes<<20, fileMegabytes<<20
	if c.dir == "" && c.durability != shard.Memory {
		return nil, wrong("dir", "a directory is needed, for instance --dir /var/lib/flashdbm")
	}
	if err := c.parseCluster(etcd, acks, wrong); err != nil {
		return nil, err
	}
	if c.socket == "" {
		if c.dir == "" {
			c.socket = filepath.Join(os.TempDir(), fmt.Sprintf("flashdbmd-%d.sock", os.Getpid()))
		} else {
			c.socket = filepath.Join(c.dir, "node.sock")
		}
	}
	if (c.cert == "") != (c.key == "") {
		return nil, wrong("tls-cert", "certificate and key come together")
	}
	if c.tcp != "" && c.password == "" {
		return nil, wrong("tcp", "set a password too: who may connect may read and write all records")
	}
	if c.verbs != "" && c.password == "" {
		return nil, wrong("verbs", "set a password too: who may connect may read and write all records")
	}
	if c.advertise == "" {
		c.advertise = c.tcp
	} else if c.tcp == "" {
		return nil, wrong("advertise", "there is nothing to advertise without --tcp")
	}
	if host, _, err := net.SplitHostPort(c.advertise); len(c.etcd) > 0 && c.tcp != "" && (err != nil || host == "" || net.ParseIP(host).IsUnspecified()) {
		return nil, wrong("advertise", "%q is no address that other machines can connect to; want one such as 10.0.0.1:7400", c.advertise)
	}
	if c.password == "" && !local(c.resp) {
		return nil, wrong("resp", "%s can be reached from other machines; set a password, or listen on 127.0.0.1", c.resp)
	}
	if c.http != "" && !local(c.http) {
		return nil, wrong("http", "%s can be reached from other machines, and asks for no password; listen on 127.0.0.1", c.http)
	}
	return c, nil
}

// local reports whether only this machine can reach an address.
func local(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// parseCluster checks and completes the settings of a node of a cluster.
func (c *config) parseCluster(etcd, acks string, wrong func(setting, format string, a ...any) error) error {
	if acks != "relaxed" && acks != "strict" {
		return wrong("acks", "%q is neither relaxed nor strict", acks)
	}
	c.strict = acks == "strict"
	if c.replicas < 1 || c.replicas > 7 {
		return wrong("replicas", "%d is out of range; want 1 to 7", c.replicas)
	}
	if c.minInSync < 0 || c.minInSync > c.replicas {
		return wrong("min-insync", "%d is out of range; want 0 to --replicas, %d", c.minInSync, c.replicas)
	}
	if etcd == "" {
		if c.node != "" {
			return wrong("node", "name the endpoints of etcd too, with --etcd: without them the node is alone")
		}
		return nil
	}
	c.etcd = strings.Split(etcd, ",")
	for _, e := range c.etcd {
		if u, err := url.Parse(e); err != nil || u.Host == "" {
			return wrong("etcd", "%q is no endpoint; want one such as http://10.0.0.1:2379", e)
		}
	}
	if c.node == "" {
		name, err := os.Hostname()
		if err != nil {
			return wrong("node", "the machine has no name (%v); give the node one", err)
		}
		c.node = strings.ReplaceAll(name, ".", "-")
	}
	if c.dir == "" {
		return wrong("dir", "a node of a cluster needs a directory for its sockets, for instance --dir /var/lib/flashdbm")
	}
	return nil
}
