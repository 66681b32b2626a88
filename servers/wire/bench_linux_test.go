package wire

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/fabric/shm"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// echoAt makes the test binary a process that answers every message, for BenchmarkRoundTrip.
var echoAt = flag.String("wire.echo", "", "address at which to answer")

func TestMain(m *testing.M) {
	flag.Parse()
	if *echoAt != "" {
		d, err := shm.Open()
		if err != nil {
			panic(err)
		}
		l, err := d.Listen(*echoAt)
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString("ready\n")
		echo(d, l)
		return
	}
	os.Exit(m.Run())
}

// echo accepts one connection and answers until it ends.
func echo(d fabric.Domain, l fabric.Listener) {
	runtime.LockOSThread()
	g, err := NewGroup(d, 1024)
	if err != nil {
		panic(err)
	}
	in, err := l.Accept(context.Background())
	if err != nil {
		panic(err)
	}
	c, err := g.Accept(in, nil)
	if err != nil {
		panic(err)
	}
	g.Add(c)
	for c.Err() == nil {
		for range 16 {
			m, ok := c.Receive()
			if !ok {
				break
			}
			b, err := c.Begin(len(m.Body))
			if err != nil {
				break
			}
			c.End(&m.Header, append(b, m.Body...))
		}
		g.Step()
	}
}

// BenchmarkRoundTrip sends a message of 48 bytes and receives one: one at a time, and with 32 under way. Both sides
// poll without sleeping.
func BenchmarkRoundTrip(b *testing.B) {
	type place struct {
		name string
		dial func(b *testing.B, carrier Carrier) (*Group, Conn)
	}
	places := []place{
		{"mem", func(b *testing.B, carrier Carrier) (*Group, Conn) {
			n := mem.NewNetwork()
			server, client := n.Open(), n.Open()
			l, err := server.Listen("a")
			require.NoError(b, err)
			go echo(server, l)
			return dialed(b, client, "a", carrier)
		}},
		{"shm", func(b *testing.B, carrier Carrier) (*Group, Conn) {
			server, err := shm.Open()
			require.NoError(b, err)
			client, err := shm.Open()
			require.NoError(b, err)
			at := filepath.Join(b.TempDir(), "s")
			l, err := server.Listen(at)
			require.NoError(b, err)
			go echo(server, l)
			return dialed(b, client, at, carrier)
		}},
		{"shm-two-processes", func(b *testing.B, carrier Carrier) (*Group, Conn) {
			at := filepath.Join(b.TempDir(), "s")
			cmd := exec.Command(os.Args[0], "-wire.echo="+at)
			out, err := cmd.StdoutPipe()
			require.NoError(b, err)
			require.NoError(b, cmd.Start())
			b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			_, err = out.Read(make([]byte, 6))
			require.NoError(b, err)
			client, err := shm.Open()
			require.NoError(b, err)
			return dialed(b, client, at, carrier)
		}},
	}
	for _, p := range places {
		for _, carrier := range []Carrier{CarrierRing, CarrierSend} {
			for _, under := range []int{1, 16} {
				name := p.name + "/" + carrier.String() + "/" + map[int]string{1: "alone", 16: "16-under-way"}[under]
				b.Run(name, func(b *testing.B) {
					g, c := p.dial(b, carrier)
					defer g.Close()
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					body := make([]byte, 48)
					sent, got := 0, 0
					b.ResetTimer()
					for got < b.N {
						for sent < b.N && sent-got < under {
							m, err := c.Begin(len(body))
							if err != nil {
								break
							}
							c.End(&Header{Op: 1}, append(m, body...))
							sent++
						}
						g.Step()
						for {
							_, ok := c.Receive()
							if !ok {
								break
							}
							got++
						}
						if err := c.Err(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// BenchmarkBothEnds is the same with both ends in one thread, by turns. It measures the instructions that both sides
// need for a round trip, however busy the machine is. The metric is the processor time of the thread.
func BenchmarkBothEnds(b *testing.B) {
	for _, name := range []string{"mem", "shm"} {
		for _, carrier := range []Carrier{CarrierRing, CarrierSend} {
			for _, under := range []int{1, 16} {
				b.Run(fmt.Sprint(name, "/", carrier, "/", under), func(b *testing.B) {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					var server, client fabric.Domain
					at := "a"
					if name == "mem" {
						n := mem.NewNetwork()
						server, client = n.Open(), n.Open()
					} else {
						var err error
						at = filepath.Join(b.TempDir(), "s")
						server, err = shm.Open()
						require.NoError(b, err)
						client, err = shm.Open()
						require.NoError(b, err)
					}
					defer client.Close()
					defer server.Close()
					l, err := server.Listen(at)
					require.NoError(b, err)
					sg, err := NewGroup(server, 1024)
					require.NoError(b, err)
					accepted := make(chan Conn, 1)
					go func() {
						in, err := l.Accept(context.Background())
						if err != nil {
							panic(err)
						}
						c, err := sg.Accept(in, nil)
						if err != nil {
							panic(err)
						}
						accepted <- c
					}()
					cg, cc := dialed(b, client, at, carrier)
					sc := <-accepted
					sg.Add(sc)
					body := make([]byte, 48)
					send := func(c Conn) {
						m, err := c.Begin(len(body))
						if err != nil {
							b.Fatal(err)
						}
						c.End(&Header{Op: 1}, append(m, body...))
					}
					b.ResetTimer()
					start := threadTime()
					for done := 0; done < b.N; {
						for range under {
							send(cc)
						}
						cg.Step()
						for got := 0; got < under; {
							if _, ok := sc.Receive(); ok {
								send(sc)
								got++
							} else {
								sg.Step()
							}
						}
						sg.Step()
						for got := 0; got < under; {
							if _, ok := cc.Receive(); ok {
								got++
							} else {
								cg.Step()
							}
						}
						done += under
					}
					b.ReportMetric(float64(threadTime()-start)/float64(b.N), "cpu-ns/op")
				})
			}
		}
	}
}

// threadTime returns the processor time of the calling thread in nanoseconds.
func threadTime() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

func dialed(b *testing.B, d fabric.Domain, addr string, carrier Carrier) (*Group, Conn) {
	g, err := NewGroup(d, 1024)
	require.NoError(b, err)
	c, _, err := g.Dial(context.Background(), addr, nil, carrier)
	require.NoError(b, err)
	g.Add(c)
	return g, c
}
