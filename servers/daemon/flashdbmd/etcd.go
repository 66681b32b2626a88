package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// runEtcd is flashdbmd etcd: a single member, to try a cluster on one machine. A cluster for production has an etcd
// on three or five machines.
func runEtcd(args []string, env func(string) (string, bool), messages io.Writer) error {
	var dir, listen string
	f := newFlags("etcd")
	f.StringVar(&dir, "dir", "", "directory of its data")
	f.StringVar(&listen, "listen", "127.0.0.1:2379", "address for nodes; it asks for no password")
	if _, err := parseFlags(f, args, 0, env, messages); err != nil {
		return err
	}
	if dir == "" {
		return fmt.Errorf("give --dir: %w", errUsage)
	}
	if !local(listen) {
		return fmt.Errorf("--listen: %s can be reached from other machines, and asks for no password; listen on 127.0.0.1 (%w)", listen, errUsage)
	}
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	at := peer.Addr().String()
	peer.Close()
	m := etcdMember{name: embed.DefaultName, dir: dir, clients: listen, peers: at, cluster: embed.DefaultName + "=http://" + at}
	return m.run(messages)
}

// An etcdMember is a member of an etcd.
type etcdMember struct {
	name, dir      string
	clients, peers string // addresses
	cluster        string // name=http://peer-address of every member, separated by commas
}

// run serves until a signal (see untilSignal) or a failure.
func (m *etcdMember) run(messages io.Writer) error {
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel = m.name, m.dir, "error"
	clients, peers := []url.URL{{Scheme: "http", Host: m.clients}}, []url.URL{{Scheme: "http", Host: m.peers}}
	c.ListenClientUrls, c.AdvertiseClientUrls = clients, clients
	c.ListenPeerUrls, c.AdvertisePeerUrls = peers, peers
	c.InitialCluster = m.cluster
	ctx, stop := untilSignal()
	defer stop()
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(patience):
		return fmt.Errorf("etcd is not ready after %v", patience)
	}
	fmt.Fprintf(messages, "flashdbmd: etcd at http://%s\n", e.Clients[0].Addr())
	select {
	case <-ctx.Done():
		return nil
	case err := <-e.Err():
		return err
	}
}
