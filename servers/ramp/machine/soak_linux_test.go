package machine_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashdbm/servers/fabric/shm"
	"flashdbm/servers/fabric/tcp"
	"flashdbm/servers/ramp"
	"flashdbm/servers/ramp/machine"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/wire"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	soakTxns = flag.Int64("soak.txns", 400, "transactions of TestSoak in each durability")
	soakTime = flag.Duration("soak.time", time.Hour, "and how long it lasts at most")
	soakKill = flag.Duration("soak.kill", 2*time.Second, "how long a server lives at most before it is killed")
	soakEach = flag.Int("soak.each", 3, "goroutines of each of the five clients; every sixteenth one writes")
	soakLoss = flag.Duration("soak.loss", 10*time.Second, "how much of what was acknowledged last a kill may lose in async mode; the file is well below a second behind on a machine that has time for it")
)

const (
	soakChild   = "FLASHDBM_SOAK_CHILD" // the role of the child: serve or orphan
	soakKeys    = 48
	soakOrphans = 6 // clients of one process that dies between the phases
)

func soakKey(i int) []byte { return fmt.Appendf(nil, "key-%02d", i) }

// soakValue returns a value with a bit for each key of its transaction.
func soakPairs(r *rand.Rand) (chosen []int, pairs []ramp.Pair) {
	chosen = r.Perm(soakKeys)[:1+r.IntN(8)]
	bits := uint64(0)
	for _, k := range chosen {
		bits |= 1 << k
	}
	for _, k := range chosen {
		pairs = append(pairs, ramp.Pair{Key: soakKey(k), Value: binary.LittleEndian.AppendUint64(make([]byte, 0, 8+r.IntN(200)), bits)})
	}
	return chosen, pairs
}

// TestSoak has clients of all carriers write and read a few keys. Meanwhile the server's process is killed, processes
// of clients are killed between the phases of their transactions, and connections are cut or blocked. Values name the
// keys of their transaction. No transaction is seen in part, no acknowledged write is lost (in async mode: except
// those just before a kill), and nothing stays prepared.
func TestSoak(t *testing.T) {
	switch os.Getenv(soakChild) {
	case "serve":
		soakServe(t)
		return
	case "orphan":
		soakOrphan(t)
		return
	}
	if testing.Short() {
		t.Skip("short")
	}
	for _, mode := range []partition.Durability{partition.Sync, partition.Async} {
		t.Run(mode.String(), func(t *testing.T) {
			if *soakTxns < 1000 { // a short run spends most of its time waiting, up to 20 seconds, until nothing is kept any more
				t.Parallel()
			}
			s := &soak{t: t, mode: mode, dir: t.TempDir()}
			s.run()
		})
	}
}

type soak struct {
	t      *testing.T
	mode   partition.Durability
	dir    string
	server *exec.Cmd
	ask    io.WriteCloser
	said   *bufio.Scanner
	addr   string // of the server's TCP; guarded by mu
	mu     sync.Mutex
	over   atomic.Bool
	kills  int
	orphan int

	puts, gets, failed, fractured, lost, repaired, oneSided, cuts atomic.Int64
	acked                                                         [soakKeys]atomic.Pointer[soakAck]
	killed                                                        atomic.Int64 // last kill of the server, in nanoseconds since 1970
}

// A soakAck is the newest acknowledged version of a key.
type soakAck struct {
	ts ramp.Timestamp
	at time.Time
}

func (s *soak) command(ctx context.Context, what string) *exec.Cmd {
	exe, err := os.Executable()
	require.NoError(s.t, err)
	c := exec.CommandContext(ctx, exe, "-test.run", "^TestSoak$", "-test.timeout", "24h")
	c.Env = append(os.Environ(), soakChild+"="+what, "SOAK_DIR="+s.dir, fmt.Sprintf("SOAK_MODE=%d", s.mode))
	c.Stderr = os.Stderr
	return c
}

func (s *soak) start() {
	s.server = s.command(context.Background(), "serve")
	out, err := s.server.StdoutPipe()
	require.NoError(s.t, err)
	s.ask, err = s.server.StdinPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, s.server.Start())
	s.said = bufio.NewScanner(out)
	var addr string
	for addr == "" && s.said.Scan() {
		fmt.Sscanf(s.said.Text(), "serving %s", &addr)
	}
	require.NotEmpty(s.t, addr, "the server does not start")
	s.mu.Lock()
	s.addr = addr
	s.mu.Unlock()
}

// status returns how many versions are prepared, and how many transactions somebody may ask about.
func (s *soak) status() (prepared, transactions int) {
	_, err := io.WriteString(s.ask, "status\n")
	require.NoError(s.t, err)
	for s.said.Scan() {
		if n, _ := fmt.Sscanf(s.said.Text(), "status %d %d", &prepared, &transactions); n == 2 {
			return prepared, transactions
		}
	}
	s.t.Fatal("the server says nothing")
	return 0, 0
}

func (s *soak) run() {
	t := s.t
	s.start()
	defer func() { s.server.Process.Kill(); s.server.Wait() }()
	memory, err := shm.Open()
	require.NoError(t, err)
	defer memory.Close()
	proxy := s.proxy()
	shmAddr := "shm:" + filepath.Join(s.dir, "node.sock")
	var wait sync.WaitGroup
	for i, x := range []struct {
		addr string
		o    ramp.Options
	}{
		{shmAddr, ramp.Options{}}, {shmAddr, ramp.Options{}}, {shmAddr, ramp.Options{Slots: -1}}, {shmAddr, ramp.Options{Slots: -1, Carrier: wire.CarrierSend}}, {"tcp:" + proxy, ramp.Options{}},
	} {
		x.o.Timeout = min(20*time.Second, 2**soakKill) // a write whose server was killed during it waits that long
		c, err := ramp.Dial(context.Background(), []string{x.addr}, &x.o)
		require.NoError(t, err)
		for g := range *soakEach {
			wait.Go(func() { s.work(c, g%16 == 0, rand.New(rand.NewPCG(uint64(i), uint64(g)))) })
		}
		defer func() {
			st := c.Stats()
			s.repaired.Add(int64(st.Repaired))
			s.oneSided.Add(int64(st.OneSided))
			assert.NoError(t, c.Close())
		}()
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	wait.Go(func() { s.orphans(ctx) })
	r := rand.New(rand.NewPCG(9, 9))
	began := time.Now()
	said := began
	for left := true; left; {
		end := time.Now().Add(time.Duration(r.Int64N(int64(*soakKill))) + *soakKill/10)
		for left && time.Now().Before(end) {
			time.Sleep(20 * time.Millisecond)
			left = s.puts.Load()+s.gets.Load() < *soakTxns && time.Since(began) < *soakTime && !t.Failed()
			if time.Since(said) > time.Minute {
				said = time.Now()
				fmt.Printf("%v: %s\n", s.mode, s)
			}
		}
		s.killed.Store(time.Now().UnixNano())
		require.NoError(t, s.server.Process.Kill())
		s.server.Wait()
		s.kills++
		s.start()
	}
	s.over.Store(true)
	end() // a client that has lost its server between the phases would wait for 20 seconds
	wait.Wait()
	c, err := ramp.Dial(context.Background(), []string{shmAddr}, nil)
	require.NoError(t, err)
	defer c.Close()
	for range 3 { // the final state, by message and by Reads
		s.read(c, rand.New(rand.NewPCG(1, 1)).Perm(soakKeys))
	}
	require.Eventually(t, func() bool {
		prepared, transactions := s.status()
		return prepared == 0 && transactions == 0
	}, time.Minute, 50*time.Millisecond, "something stays prepared, or is kept, for ever")
	t.Log(s)
	fmt.Printf("%v, done: %s\n", s.mode, s)
	require.Zero(t, s.fractured.Load(), "fractured")
	require.Zero(t, s.lost.Load(), "lost")
	require.Positive(t, s.puts.Load())
}

func (s *soak) String() string {
	return fmt.Sprintf("%d transactions written, %d read, %d failed; %d servers killed, %d clients killed between the phases, %d connections cut; %d fractured, %d lost", s.puts.Load(),
		s.gets.Load(), s.failed.Load(), s.kills, s.orphan, s.cuts.Load(), s.fractured.Load(), s.lost.Load())
}

func (s *soak) work(c *ramp.Client, writes bool, r *rand.Rand) {
	for !s.over.Load() {
		if !writes {
			s.read(c, r.Perm(soakKeys)[:1+r.IntN(8)])
			continue
		}
		chosen, pairs := soakPairs(r)
		ts, err := c.PutAll(context.Background(), pairs)
		if err != nil {
			s.failed.Add(1)
			continue
		}
		s.puts.Add(1)
		ack := &soakAck{ts, time.Now()}
		for _, k := range chosen {
			for {
				if was := s.acked[k].Load(); was != nil && was.ts >= ts || s.acked[k].CompareAndSwap(was, ack) {
					break
				}
			}
		}
	}
}

// read reads keys in one transaction and checks the values.
func (s *soak) read(c *ramp.Client, chosen []int) {
	var keys [][]byte
	var least []*soakAck
	for _, k := range chosen {
		keys, least = append(keys, soakKey(k)), append(least, s.acked[k].Load())
	}
	values, err := c.GetAll(context.Background(), keys)
	if err != nil {
		s.failed.Add(1)
		return
	}
	s.gets.Add(1)
	for i, v := range values {
		if a := least[i]; a != nil && v.TS < a.ts && !s.mayBeLost(a) {
			s.lost.Add(1)
			s.t.Errorf("key %d has version %v, %v was acknowledged", chosen[i], v.TS, a.ts)
		}
		if !v.Found {
			continue
		}
		bits := binary.LittleEndian.Uint64(v.Value)
		for j, k := range chosen {
			if bits>>k&1 != 0 && values[j].TS < v.TS {
				s.fractured.Add(1)
				s.t.Errorf("key %d has version %v, whose transaction wrote key %d, too, which has version %v", chosen[i], v.TS, k, values[j].TS)
			}
		}
	}
}

// mayBeLost reports whether a kill in async mode may have lost an acknowledged write.
func (s *soak) mayBeLost(a *soakAck) bool {
	at := time.Unix(0, s.killed.Load())
	return s.mode == partition.Async && s.killed.Load() != 0 && a.at.Before(at.Add(time.Second)) && a.at.After(at.Add(-*soakLoss))
}

// orphans has processes of clients die between the phases.
func (s *soak) orphans(ctx context.Context) {
	for !s.over.Load() {
		time.Sleep(*soakKill / 4)
		c := s.command(ctx, "orphan")
		c.Env = append(c.Env, fmt.Sprintf("SOAK_SEED=%d", s.orphan))
		if err := c.Run(); err != nil { // it was killed
			s.orphan += soakOrphans
		}
	}
}

func soakOrphan(t *testing.T) {
	seed, _ := strconv.Atoi(os.Getenv("SOAK_SEED"))
	var ready sync.WaitGroup
	ready.Add(soakOrphans)
	time.AfterFunc(20*time.Second, func() { os.Exit(0) })
	for i := range soakOrphans {
		go func() {
			r := rand.New(rand.NewPCG(uint64(seed), uint64(i)))
			c, err := ramp.Dial(context.Background(), []string{"shm:" + filepath.Join(os.Getenv("SOAK_DIR"), "node.sock")}, &ramp.Options{BeforeCommit: func(ramp.Timestamp) {
				ready.Done()
				select {}
			}})
			if err != nil {
				os.Exit(0) // the server has just been killed
			}
			for {
				_, pairs := soakPairs(r)
				if _, err := c.PutAll(context.Background(), pairs); err != nil {
					os.Exit(0)
				}
			}
		}()
	}
	ready.Wait()
	p, _ := os.FindProcess(os.Getpid())
	p.Kill()
	select {}
}

func soakServe(t *testing.T) {
	mode, _ := strconv.Atoi(os.Getenv("SOAK_MODE"))
	dir := os.Getenv("SOAK_DIR")
	memory, err := shm.Open()
	require.NoError(t, err)
	network := tcp.Open(tcp.Options{})
	n, err := machine.Open(machine.Options{
		Dir: dir, Partitions: 3, Durability: partition.Durability(mode), Extent: 16 << 20, MaxFile: 1 << 30,
		Listen: []machine.Listen{{Domain: memory, Addr: filepath.Join(dir, "node.sock")}, {Domain: network, Addr: "127.0.0.1:0"}},
	})
	require.NoError(t, err)
	fmt.Printf("\nserving %s\n", n.Addrs()[1])
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		prepared, transactions := 0, 0
		for _, p := range n.Status().Partitions {
			prepared, transactions = prepared+p.Prepared, transactions+p.Transactions
		}
		fmt.Printf("status %d %d\n", prepared, transactions)
	}
	require.NoError(t, n.Close())
}

// proxy is a TCP proxy between clients and the server. It cuts connections, or blocks them for a while.
func (s *soak) proxy() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	s.t.Cleanup(func() { l.Close() })
	go func() {
		for seed := uint64(0); ; seed++ {
			near, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			addr := s.addr
			s.mu.Unlock()
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			r := rand.New(rand.NewPCG(7, seed))
			stall := time.Now().Add(time.Duration(r.Int64N(int64(*soakKill))))
			pass := func(from, to net.Conn, pause time.Duration) {
				defer from.Close()
				defer to.Close()
				b := make([]byte, 64<<10)
				for {
					n, err := from.Read(b)
					if err != nil {
						return
					}
					if time.Now().After(stall) && pause > 0 {
						s.cuts.Add(1)
						time.Sleep(pause)
						return
					}
					if _, err := to.Write(b[:n]); err != nil {
						return
					}
				}
			}
			pauses := []time.Duration{0, time.Nanosecond, time.Duration(r.Int64N(int64(2 * time.Second)))}
			go pass(near, far, pauses[r.IntN(3)])
			go pass(far, near, pauses[r.IntN(3)])
		}
	}()
	return l.Addr().String()
}
