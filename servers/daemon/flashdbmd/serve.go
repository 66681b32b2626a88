package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"flashdbm/servers/daemon/etcdmap"
	"flashdbm/servers/daemon/resp"
	"flashdbm/servers/fabric/shm"
	"flashdbm/servers/fabric/tcp"
	"flashdbm/servers/hydra"
	"flashdbm/servers/hydra/machine"
)

// patience bounds two waits: for the answers to commands that have arrived when the process is told to end, and for
// the first answer of the node.
const patience = 10 * time.Second

// serve runs until a signal (see untilSignal) or a failure of the node. After a signal it returns nil, once everything
// that was acknowledged is in the files.
func serve(c *config, messages io.Writer) (err error) {
	if c.table == "ramp" {
		return serveRamp(c, messages)
	}
	ctx, stop := untilSignal()
	defer stop()
	closing := func(what string, end func() error) {
		if cerr := end(); cerr != nil && err == nil {
			err = fmt.Errorf("closing %s: %w", what, cerr)
		}
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
		Dir: c.dir, Shards: c.shards, Durability: c.durability, Memory: c.memory / int64(max(c.shards, 1)), MaxFile: c.maxFile, Evict: c.evict,
		Listen: []machine.Listen{{Domain: memory, Addr: c.socket, Public: "shm:" + c.socket}},
	}
	if c.password != "" {
		o.Secret = []byte(c.password)
	}
	if c.tcp != "" {
		network := tcp.Open(tcp.Options{})
		defer closing("network", network.Close)
		o.Listen = append(o.Listen, machine.Listen{Domain: network, Addr: c.tcp, Public: "tcp:" + c.advertise})
	}
	if c.verbs != "" { // records are allocated in the memory of the first domain; clients over the device Read them there
		device, err := openDevice(c.verbs)
		if err != nil {
			return err
		}
		defer closing("RDMA device", device.Close)
		o.Listen = append([]machine.Listen{{Domain: device, Addr: c.verbs, Public: "verbs:" + c.verbs, Peers: true}}, o.Listen...)
	}
	if len(c.etcd) > 0 {
		agreed, err := etcdmap.Open(etcdmap.Options{Endpoints: c.etcd, Name: c.cluster})
		if err != nil {
			return err
		}
		defer closing("etcd", agreed.Close)
		o.Cluster = &machine.ClusterOptions{Cluster: agreed, Node: c.node, Replicas: c.replicas, Strict: c.strict, MinInSync: c.minInSync}
	}
	node, err := machine.Open(o)
	if err != nil {
		return err
	}
	defer closing("node", node.Close)
	client, err := clientOf(ctx, c, node)
	if err != nil {
		return err
	}
	defer closing("client", client.Close)

	config, err := respConfig(c)
	if err != nil {
		return err
	}
	server := resp.NewServer(client, config)
	listener, err := net.Listen("tcp", c.resp)
	if err != nil {
		return err
	}
	admin := &admin{c: c, began: time.Now(), node: node, client: client, server: server, resp: listener.Addr().String()}
	failed := make(chan error, 3)
	go func() { failed <- server.Serve(listener) }()
	if c.http != "" {
		l, err := net.Listen("tcp", c.http)
		if err != nil {
			listener.Close()
			return err
		}
		defer l.Close()
		go func() { failed <- admin.serve(l, false) }()
	}
	if c.dir != "" {
		l, err := listenAdmin(c.dir)
		if err != nil {
			listener.Close()
			return err
		}
		defer l.Close()
		go func() { failed <- admin.serve(l, true) }()
	}
	fmt.Fprintf(messages, "flashdbmd: serving %s: RESP at %s, client library at shm:%s\n", where(c), listener.Addr(), c.socket)
	return untilEnd(ctx, stop, node, server, failed, messages)
}

// A member is a node of either kind.
type member interface {
	Err() error
	Leave(context.Context)
}

// untilEnd waits for a signal or a failure, and then shuts the server down. After a signal, the node first leaves its
// cluster.
func untilEnd(ctx context.Context, stop func(), node member, server *resp.Server, failed <-chan error, messages io.Writer) (err error) {
	select {
	case <-ctx.Done():
		fmt.Fprintln(messages, "flashdbmd: ending")
		stop() // a second signal ends the process at once
	case err = <-failed:
	case err = <-nodeFails(ctx, node):
	}
	if err == nil {
		node.Leave(context.Background()) // meanwhile clients are served, in the end by other nodes
	}
	ending, done := context.WithTimeout(context.Background(), patience)
	defer done()
	if serr := server.Shutdown(ending); serr != nil && !errors.Is(serr, context.DeadlineExceeded) && err == nil {
		err = serr
	}
	return err
}

// clientOf returns the client that RESP's commands use: a client of the shards of this process, or of all shards of
// the cluster, wherever these are served.
func clientOf(ctx context.Context, c *config, node *machine.Node) (*hydra.Client, error) {
	if len(c.etcd) == 0 {
		return hydra.Local(node, nil)
	}
	o := &hydra.Options{Timeout: patience}
	if c.password != "" {
		o.Secret = []byte(c.password)
	}
	for {
		client, err := hydra.Dial(ctx, []string{"shm:" + c.socket}, o)
		if err == nil || ctx.Err() != nil {
			return client, err
		}
	}
}

// respConfig returns the configuration of the RESP server.
func respConfig(c *config) (resp.Config, error) {
	config := resp.Config{Password: c.password, Evicts: c.evict}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return config, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		config.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	return config, nil
}

func where(c *config) string {
	if c.dir == "" {
		return "records in memory only"
	}
	return c.dir
}

// nodeFails sends the error of the first shard that no longer serves.
func nodeFails(ctx context.Context, node member) <-chan error {
	failed := make(chan error, 1)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := node.Err(); err != nil {
				failed <- err
				return
			}
		}
	}()
	return failed
}
