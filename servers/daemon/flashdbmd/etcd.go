package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// runEtcd is flashdbmd etcd: one member, for trying a cluster on one machine. A cluster that matters has an etcd of three or five machines.
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
	peerURL := url.URL{Scheme: "http", Host: peer.Addr().String()}
	peer.Close()
	c := embed.NewConfig()
	c.Dir, c.LogLevel = dir, "error"
	clientURL := url.URL{Scheme: "http", Host: listen}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{clientURL}, []url.URL{clientURL}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peerURL}, []url.URL{peerURL}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
