package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime/debug"
	"time"

	"flashdbm/servers/daemon/etcdmap"
	"flashdbm/servers/daemon/resp"
	"flashdbm/servers/fabric/shm"
	"flashdbm/servers/fabric/tcp"
	"flashdbm/servers/membership"
	"flashdbm/servers/ramp"
	"flashdbm/servers/ramp/machine"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/shard"
)

// gcPercent is the value of Go's GOGC unless the environment sets one. Keys and values are not in Go's memory, but
// what was written within the last seconds is, and a collection scans all of that. With Go's default of 100,
// collections took a seventh of the processor time of a table that was busy with MSETs.
const gcPercent = 400

// serveRamp is serve for a RAMP table.
func serveRamp(c *config, messages io.Writer) (err error) {
	ctx, stop := untilSignal()
	defer stop()
	closing := func(what string, end func() error) {
		if cerr := end(); cerr != nil && err == nil {
			err = fmt.Errorf("closing %s: %w", what, cerr)
		}
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if c.dir != "" {
		if err := os.MkdirAll(c.dir, 0o700); err != nil {
			return err
		}
	}
	memory, err := shm.Open()
	if err != nil {
		return err
	}
	defer closing("shared memory", memory.Close)
	o := machine.Options{
		Dir: c.dir, Partitions: c.shards, Memory: c.memory / int64(max(c.shards, 1)), MaxFile: c.maxFile,
		Durability: map[shard.Durability]partition.Durability{shard.Memory: partition.Memory, shard.Async: partition.Async, shard.Sync: partition.Sync}[c.durability],
		Listen:     []machine.Listen{{Domain: memory, Addr: c.socket, Public: "shm:" + c.socket}},
	}
	if c.password != "" {
		o.Secret = []byte(c.password)
	}
	if c.tcp != "" {
		network := tcp.Open(tcp.Options{})
		defer closing("network", network.Close)
		o.Listen = append(o.Listen, machine.Listen{Domain: network, Addr: c.tcp, Public: "tcp:" + c.advertise})
	}
	if c.verbs != "" { // slots are allocated in the memory of the first domain; clients over the device Read them there
		device, err := openDevice(c.verbs)
		if err != nil {
			return err
		}
		defer closing("RDMA device", device.Close)
		o.Listen = append([]machine.Listen{{Domain: device, Addr: c.verbs, Public: "verbs:" + c.verbs}}, o.Listen...)
	}
	if len(c.etcd) > 0 {
		agreed, err := etcdmap.Open(etcdmap.Options{Endpoints: c.etcd, Name: c.cluster})
		if err != nil {
			return err
		}
		defer closing("etcd", agreed.Close)
		o.Cluster = &membership.Options{Cluster: agreed, Node: c.node, Replicas: c.replicas, Strict: c.strict, MinInSync: c.minInSync}
	}
	node, err := machine.Open(o)
	if err != nil {
		return err
	}
	defer closing("node", node.Close)
	client, end, err := rampClientOf(ctx, c, node)
	if err != nil {
		return err
	}
	defer closing("client", end)
	config, err := respConfig(c)
	if err != nil {
		return err
	}
	table := resp.RampTable{Client: client}
	config.Transactions = table
	server := resp.NewServer(table, config)
	listener, err := net.Listen("tcp", c.resp)
	if err != nil {
		return err
	}
	admin := &rampAdmin{c: c, began: time.Now(), node: node, server: server, resp: listener.Addr().String()}
	failed := make(chan error, 3)
	go func() { failed <- server.Serve(listener) }()
	if c.http != "" {
		l, err := net.Listen("tcp", c.http)
		if err != nil {
			listener.Close()
			return err
		}
		defer l.Close()
		go func() { failed <- admin.serve(l) }()
	}
	if c.dir != "" {
		l, err := listenAdmin(c.dir)
		if err != nil {
			listener.Close()
			return err
		}
		defer l.Close()
		go func() { failed <- admin.serve(l) }()
	}
	fmt.Fprintf(messages, "flashdbmd: serving a RAMP table of %s: RESP at %s, client library at shm:%s\n", where(c), listener.Addr(), c.socket)
	return untilEnd(ctx, stop, node, server, failed, messages)
}

// rampClientOf returns the client that RESP's commands use, and the function that ends it: a client of the partitions
// of this process, or of all nodes.
func rampClientOf(ctx context.Context, c *config, node *machine.Node) (resp.RampClient, func() error, error) {
	if len(c.etcd) == 0 {
		return ramp.Local(node, 0), func() error { return nil }, nil
	}
	o := &ramp.Options{Timeout: patience}
	if c.password != "" {
		o.Secret = []byte(c.password)
	}
	for {
		client, err := ramp.Dial(ctx, []string{"shm:" + c.socket}, o)
		switch {
		case err == nil:
			return client, client.Close, nil
		case ctx.Err() != nil:
			return nil, nil, err
		}
	}
}

// A rampAdmin answers requests over HTTP about the process.
type rampAdmin struct {
	c      *config
	began  time.Time
	node   *machine.Node
	server *resp.Server
	resp   string // address
}

// rampStatus is what /status and flashdbmd status report of a RAMP table.
type rampStatus struct {
	Process     int       `json:"pid"`
	Began       time.Time `json:"began"`
	Table       string    `json:"table"` // ramp
	Directory   string    `json:"directory"`
	RESP        string    `json:"resp"`
	Socket      string    `json:"socket"`
	Connections int       `json:"connections"` // of RESP
	Commands    int64     `json:"commands"`    // of RESP, since the start
	Processor   float64   `json:"processor_seconds"`
	FileBytes   int64     `json:"file_bytes"` // of all partitions
	// Status has what each partition is and has done; see package ramp/partition.
	machine.Status
}

func (a *rampAdmin) status() rampStatus {
	return rampStatus{
		Process: os.Getpid(), Began: a.began, Table: "ramp", Directory: a.c.dir, RESP: a.resp, Socket: a.c.socket, Connections: a.server.Connections(),
		Processor: processTime().Seconds(), Status: a.node.Status(), Commands: commandsOf(a.server), FileBytes: fileBytes(a.c.dir, "partition-*.fdbm"),
	}
}

// serve serves status and health until the listener is closed.
func (a *rampAdmin) serve(l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.Encode(a.status())
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.node.Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return s.Serve(l)
}
