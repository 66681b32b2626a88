package etcdmap

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"flashdbm/servers/cluster"
)

// startEtcd starts an etcd in this process. It returns the endpoint, and a function that stops etcd before the test
// ends.
func startEtcd(t *testing.T) (endpoint string, stop func()) {
	free := func() url.URL {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		return url.URL{Scheme: "http", Host: l.Addr().String()}
	}
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.UnsafeNoFsync = t.TempDir(), "error", true
	client, peer := free(), free()
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	require.NoError(t, err)
	stop = sync.OnceFunc(e.Close)
	t.Cleanup(stop)
	<-e.Server.ReadyNotify()
	return client.String(), stop
}

// TestMap: etcd keeps the promises of package cluster.
func TestMap(t *testing.T) {
	at, _ := startEtcd(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(name string) *Map {
		m, err := Open(Options{Endpoints: []string{at}, Name: name})
		require.NoError(t, err)
		t.Cleanup(func() { m.Close() })
		return m
	}
	m, other := open("one"), open("other")
	first, err := m.CompareAndSet(ctx, "shards/1", 0, []byte("a"))
	require.NoError(t, err)
	_, err = m.CompareAndSet(ctx, "shards/1", 0, []byte("b"))
	assert.ErrorIs(t, err, cluster.ErrChanged)
	v, err := m.Get(ctx, "shards/1")
	require.NoError(t, err)
	assert.Equal(t, cluster.Value{Name: "shards/1", Data: []byte("a"), Revision: first}, v)
	v, err = other.Get(ctx, "shards/1")
	require.NoError(t, err)
	assert.Equal(t, cluster.Value{Name: "shards/1"}, v, "clusters do not see each other")
	list, at1, err := m.List(ctx, "shards/")
	require.NoError(t, err)
	assert.Len(t, list, 1)
	w := m.Watch(ctx, "", at1)
	beside, err := other.CompareAndSet(ctx, "beside", 0, []byte("x"))
	require.NoError(t, err)
	_, err = other.CompareAndSet(ctx, "more", 0, []byte("x"), cluster.Value{Name: "beside", Revision: beside - 1})
	assert.ErrorIs(t, err, cluster.ErrChanged)
	_, err = other.CompareAndSet(ctx, "more", 0, []byte("x"), cluster.Value{Name: "beside", Revision: beside}, cluster.Value{Name: "none"})
	require.NoError(t, err)
	second, err := m.CompareAndSet(ctx, "shards/1", first, nil)
	require.NoError(t, err)
	assert.Equal(t, cluster.Value{Name: "shards/1", Revision: second}, <-w, "a removal")

	s, err := m.Session(ctx, time.Second)
	require.NoError(t, err)
	_, err = s.Put(ctx, "nodes/a", []byte("here"))
	require.NoError(t, err)
	require.NoError(t, s.Campaign(ctx, "swat", []byte("a")))
	s2, err := m.Session(ctx, time.Second)
	require.NoError(t, err)
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	assert.Error(t, s2.Campaign(short, "swat", []byte("b")), "one leads")
	require.NoError(t, s.Close())
	<-s.Done()
	require.NoError(t, s2.Campaign(ctx, "swat", []byte("b")))
	v, err = m.Get(ctx, "swat")
	require.NoError(t, err)
	assert.Equal(t, "b", string(v.Data))
	v, err = m.Get(ctx, "nodes/a")
	require.NoError(t, err)
	assert.Zero(t, v.Revision, "what was bound to the session is gone")
	require.NoError(t, s2.Resign(ctx, "swat"))
	v, err = m.Get(ctx, "swat")
	require.NoError(t, err)
	assert.Zero(t, v.Revision)

	gone, err := Open(Options{Endpoints: []string{"http://127.0.0.1:1"}, Name: "one"})
	require.NoError(t, err)
	defer gone.Close()
	short, stop = context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	_, err = gone.CompareAndSet(short, "x", 0, nil)
	assert.Error(t, err)
	assert.NotErrorIs(t, err, cluster.ErrChanged, "the outcome is unknown")
}

// TestCampaignEndsWithoutEtcd: a candidate that gives up while etcd cannot be reached does not wait until etcd is
// back.
func TestCampaignEndsWithoutEtcd(t *testing.T) {
	at, stopEtcd := startEtcd(t)
	m, err := Open(Options{Endpoints: []string{at}, Name: "one"})
	require.NoError(t, err)
	defer m.Close()
	leader, err := m.Session(t.Context(), time.Minute)
	require.NoError(t, err)
	require.NoError(t, leader.Campaign(t.Context(), "swat", []byte("a")))
	s, err := m.Session(t.Context(), time.Second)
	require.NoError(t, err)
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Campaign(ctx, "swat", []byte("b")) }()
	require.Eventually(t, func() bool {
		r, err := m.c.Get(t.Context(), m.prefix+"elections/swat/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && r.Count == 2
	}, time.Minute, 10*time.Millisecond, "both are candidates")
	stopEtcd()
	giveUp()
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the candidate waits for an etcd that is away")
	}
}
