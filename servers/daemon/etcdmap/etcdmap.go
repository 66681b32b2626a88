// Package etcdmap implements package cluster on etcd: the record on which the nodes of a cluster of several processes
// agree.
//
// Every name is a key below the prefix /flashdbm/CLUSTER/. A revision is etcd's revision, which orders the changes of
// all keys. Sessions are leases that etcd's client keeps alive; elections are those of etcd's client library.
package etcdmap

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"flashdbm/servers/cluster"
)

// Options say where etcd is and which cluster is meant.
type Options struct {
	Endpoints []string // such as "http://10.0.0.1:2379"
	Name      string   // of the cluster
	User      string   // empty: etcd asks for no user
	Password  string
}

// dialTimeout bounds how long a connection to one of the endpoints may take.
const dialTimeout = 2 * time.Second

// A Map is a cluster.Cluster.
type Map struct {
	c      *clientv3.Client
	prefix string
}

var _ cluster.Cluster = (*Map)(nil)

// Open connects to etcd. It returns at once: calls wait for the connection.
func Open(o Options) (*Map, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints, DialTimeout: dialTimeout, Username: o.User, Password: o.Password, Logger: zap.NewNop(),
		DialKeepAliveTime: dialTimeout, DialKeepAliveTimeout: dialTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(o.Endpoints, ", "), err)
	}
	return &Map{c: c, prefix: "/flashdbm/" + o.Name + "/"}, nil
}

// Close ends the connection.
func (m *Map) Close() error { return m.c.Close() }

func (m *Map) value(key, data []byte, revision int64) cluster.Value {
	return cluster.Value{Name: strings.TrimPrefix(string(key), m.prefix), Data: data, Revision: uint64(revision)}
}

// Get implements cluster.Cluster.
func (m *Map) Get(ctx context.Context, name string) (cluster.Value, error) {
	r, err := m.c.Get(ctx, m.prefix+name)
	if err != nil {
		return cluster.Value{}, fmt.Errorf("etcd: %w", err)
	}
	if len(r.Kvs) == 0 {
		return cluster.Value{Name: name}, nil
	}
	return m.value(r.Kvs[0].Key, r.Kvs[0].Value, r.Kvs[0].ModRevision), nil
}

// List implements cluster.Cluster.
func (m *Map) List(ctx context.Context, prefix string) (values []cluster.Value, revision uint64, err error) {
	r, err := m.c.Get(ctx, m.prefix+prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
	if err != nil {
		return nil, 0, fmt.Errorf("etcd: %w", err)
	}
	for _, kv := range r.Kvs {
		values = append(values, m.value(kv.Key, kv.Value, kv.ModRevision))
	}
	return values, uint64(r.Header.Revision), nil
}

// CompareAndSet implements cluster.Cluster.
func (m *Map) CompareAndSet(ctx context.Context, name string, revision uint64, data []byte, others ...cluster.Value) (uint64, error) {
	key := m.prefix + name
	var all []clientv3.Cmp
	for _, v := range append([]cluster.Value{{Name: name, Revision: revision}}, others...) {
		if v.Revision > math.MaxInt64 {
			return 0, cluster.ErrChanged
		}
		all = append(all, clientv3.Compare(clientv3.ModRevision(m.prefix+v.Name), "=", int64(v.Revision)))
	}
	op := clientv3.OpPut(key, string(data))
	if data == nil {
		op = clientv3.OpDelete(key)
	}
	r, err := m.c.Txn(ctx).If(all...).Then(op).Commit()
	if err != nil {
		return 0, fmt.Errorf("etcd: %w", err) // the outcome is unknown
	}
	if !r.Succeeded {
		return 0, cluster.ErrChanged
	}
	return uint64(r.Header.Revision), nil
}

// Watch implements cluster.Cluster.
func (m *Map) Watch(ctx context.Context, prefix string, behind uint64) <-chan cluster.Value {
	out := make(chan cluster.Value)
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	in := m.c.Watch(ctx, m.prefix+prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(behind)+1))
	go func() {
		defer close(out)
		defer cancel()
		for r := range in {
			if r.Err() != nil {
				return // compacted, or no leader: the caller lists again
			}
			for _, e := range r.Events {
				v := m.value(e.Kv.Key, e.Kv.Value, e.Kv.ModRevision)
				if e.Type == clientv3.EventTypeDelete {
					v.Data = nil
				}
				select {
				case out <- v:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out
}

// session is a lease.
type session struct {
	m *Map
	s *concurrency.Session

	mu        sync.Mutex // guards elections
	elections map[string]*concurrency.Election
}

// Session implements cluster.Cluster.
func (m *Map) Session(ctx context.Context, ttl time.Duration) (cluster.Session, error) {
	lease, err := m.c.Grant(ctx, max(1, int64(math.Ceil(ttl.Seconds()))))
	if err != nil {
		return nil, fmt.Errorf("etcd: a lease: %w", err)
	}
	s, err := concurrency.NewSession(m.c, concurrency.WithLease(lease.ID))
	if err != nil {
		return nil, fmt.Errorf("etcd: a session: %w", err)
	}
	return &session{m: m, s: s, elections: map[string]*concurrency.Election{}}, nil
}

// Put implements cluster.Session.
func (s *session) Put(ctx context.Context, name string, data []byte) (uint64, error) {
	r, err := s.m.c.Put(ctx, s.m.prefix+name, string(data), clientv3.WithLease(s.s.Lease()))
	if err != nil {
		return 0, s.problem(err)
	}
	return uint64(r.Header.Revision), nil
}

func (s *session) problem(err error) error {
	select {
	case <-s.s.Done():
		return errors.Join(cluster.ErrSession, err)
	default:
		return fmt.Errorf("etcd: %w", err)
	}
}

// Campaign implements cluster.Session. The candidates are keys below the election's name; the leader is the oldest one.
func (s *session) Campaign(ctx context.Context, election string, data []byte) error {
	s.mu.Lock()
	e := s.elections[election]
	if e == nil {
		e = concurrency.NewElection(s.s, s.m.prefix+"elections/"+election)
		s.elections[election] = e
	}
	s.mu.Unlock()
	ended := make(chan error, 1)
	go func() { ended <- e.Campaign(ctx, string(data)) }()
	select {
	case err := <-ended:
		if err != nil {
			return s.problem(err)
		}
	case <-s.s.Done():
		// Once ctx has ended, e.Campaign withdraws the candidate and waits for etcd's answer without a limit. Without
		// an answer the session ends after its time to live, and the candidate with it. The goroutine ends once etcd
		// answers, or when the client is closed.
		return cluster.ErrSession
	}
	_, err := s.Put(ctx, election, data)
	return err
}

// Resign implements cluster.Session.
func (s *session) Resign(ctx context.Context, election string) error {
	s.mu.Lock()
	e := s.elections[election]
	s.mu.Unlock()
	if e == nil {
		return nil
	}
	if _, err := s.m.c.Delete(ctx, s.m.prefix+election); err != nil { // before e.Resign: until then no other session leads, so the value is this session's
		return s.problem(err)
	}
	if err := e.Resign(ctx); err != nil {
		return s.problem(err)
	}
	return nil
}

// Done implements cluster.Session.
func (s *session) Done() <-chan struct{} { return s.s.Done() }

// Close implements cluster.Session.
func (s *session) Close() error { return s.s.Close() }
