package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// startProcess starts a process that ends with the benchmark.
func (b *hydraBench) startProcess(name string, args ...string) (pid int, err error) {
	cmd := exec.Command(name, args...)
	if cmd.Stderr, err = os.Create(filepath.Join(b.dir, filepath.Base(name)+fmt.Sprint(len(b.ends))+".log")); err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("%w; Debian has it: apt-get install redis-server memcached", err)
	}
	b.ends = append(b.ends, func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		return nil
	})
	return cmd.Process.Pid, nil
}

// freePort returns a TCP port that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// dialSoon dials a process that may still be starting.
func dialSoon(port int) (c net.Conn, err error) {
	for range 100 {
		if c, err = net.Dial("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			return c, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, err
}

// A textSession speaks one of the two line-based protocols over TCP.
type textSession struct {
	c      net.Conn
	r      *bufio.Reader
	out    []byte
	n      int
	encode func(out []byte, o *op) []byte
	answer func(r *bufio.Reader, o *op) error
}

func (s *textSession) depth() int   { return s.n }
func (s *textSession) Close() error { return s.c.Close() }

func (s *textSession) do(ops []op) error {
	s.out = s.out[:0]
	for i := range ops {
		s.out = s.encode(s.out, &ops[i])
	}
	if _, err := s.c.Write(s.out); err != nil {
		return err
	}
	for i := range ops {
		if err := s.answer(s.r, &ops[i]); err != nil {
			return err
		}
	}
	return nil
}

var errAnswer = errors.New("an unexpected answer")

// value discards a value and the end of its line.
func value(r *bufio.Reader, n int) error {
	if n != valueSize {
		return fmt.Errorf("%w: a value of %d bytes", errAnswer, n)
	}
	_, err := r.Discard(n + 2)
	return err
}

func redisEncode(out []byte, o *op) []byte {
	bulk := func(b []byte) {
		out = append(strconv.AppendInt(append(out, '$'), int64(len(b)), 10), "\r\n"...)
		out = append(append(out, b...), "\r\n"...)
	}
	if o.update {
		out = append(out, "*3\r\n$3\r\nSET\r\n"...)
		bulk(o.key)
		bulk(theValue)
		return out
	}
	out = append(out, "*2\r\n$3\r\nGET\r\n"...)
	bulk(o.key)
	return out
}

func redisAnswer(r *bufio.Reader, o *op) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if o.update {
		if !bytes.HasPrefix(line, []byte("+OK")) {
			return fmt.Errorf("%w: %q", errAnswer, line)
		}
		return nil
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil || line[0] != '$' {
		return fmt.Errorf("%w: %q", errAnswer, line)
	}
	return value(r, n)
}

func memcachedEncode(out []byte, o *op) []byte {
	if !o.update {
		return append(append(append(out, "get "...), o.key...), "\r\n"...)
	}
	out = append(append(append(out, "set "...), o.key...), " 0 0 "...)
	out = append(strconv.AppendInt(out, valueSize, 10), "\r\n"...)
	return append(append(out, theValue...), "\r\n"...)
}

func memcachedAnswer(r *bufio.Reader, o *op) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if o.update {
		if !bytes.HasPrefix(line, []byte("STORED")) {
			return fmt.Errorf("%w: %q", errAnswer, line)
		}
		return nil
	}
	fields := bytes.Fields(line) // VALUE key flags bytes
	if len(fields) != 4 {
		return fmt.Errorf("%w: %q", errAnswer, line)
	}
	n, err := strconv.Atoi(string(fields[3]))
	if err != nil {
		return err
	}
	if err := value(r, n); err != nil {
		return err
	}
	_, err = r.Discard(len("END\r\n"))
	return err
}

// textRival returns a rival for a process that speaks a line-based protocol at a port.
func textRival(name string, pid, port, depth int, encode func([]byte, *op) []byte, answer func(*bufio.Reader, *op) error) *rival {
	open := func() (session, error) {
		c, err := dialSoon(port)
		if err != nil {
			return nil, err
		}
		return &textSession{c: c, r: bufio.NewReader(c), n: depth, encode: encode, answer: answer}, nil
	}
	return &rival{name: name, pids: []int{pid}, session: open, load: func(records int) error { return loadBy(open, records) }}
}

// loadBy writes all records by as many sessions as are measured. By one session, of a hundred commands at a time,
// memcached took 80 ms for each hundred on an idle machine.
func loadBy(open func() (session, error), records int) error {
	errs := make([]error, clients)
	var wait sync.WaitGroup
	for g := range clients {
		wait.Go(func() {
			s, err := open()
			if err != nil {
				errs[g] = err
				return
			}
			ops := make([]op, s.depth())
			for i := g * len(ops); i < records && err == nil; i += clients * len(ops) {
				for j := range ops {
					ops[j] = op{hydraKey(ops[j].key, min(i+j, records-1)), true}
				}
				err = s.do(ops)
			}
			errs[g] = errors.Join(err, s.Close())
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// startRedis starts a Redis process for one of its rivals.
func (b *hydraBench) startRedis(name string) (*rival, error) {
	depth := 1
	if name == namePipelined {
		depth = pipeline
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	pid, err := b.startProcess("redis-server", "--port", fmt.Sprint(port), "--save", "", "--appendonly", "no", "--dir", b.dir, "--logfile", filepath.Join(b.dir, "redis.log"))
	if err != nil {
		return nil, err
	}
	return textRival(name, pid, port, depth, redisEncode, redisAnswer), nil
}

func (b *hydraBench) startMemcached() (*rival, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{"-l", "127.0.0.1", "-p", fmt.Sprint(port), "-m", "1024"}
	if os.Getuid() == 0 {
		args = append(args, "-u", "nobody")
	}
	pid, err := b.startProcess("memcached", args...)
	if err != nil {
		return nil, err
	}
	return textRival(nameMemcached, pid, port, 1, memcachedEncode, memcachedAnswer), nil
}

// startServer starts this program as a HydraDB node, see serveHydra.
func (b *hydraBench) startServer(kind, addr string) (pid int, err error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(exe, "-node", kind, "-serve", addr)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	b.ends = append(b.ends, func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		return cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil && !errors.Is(err, io.EOF) || line != "serving\n" {
		return 0, fmt.Errorf("the node does not start: %q %w", line, err)
	}
	return cmd.Process.Pid, nil
}
