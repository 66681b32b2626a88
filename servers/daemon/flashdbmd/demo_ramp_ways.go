package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"

	"flashdbm/servers/ramp"
)

// A way is a kind of client that makes transactions.
type way interface {
	put(keys, values [][]byte) error
	get(keys [][]byte) ([][]byte, error) // nil: no value
}

type libraryWay struct{ c *ramp.Client }

func (w libraryWay) put(keys, values [][]byte) error {
	var pairs []ramp.Pair
	for i := range keys {
		pairs = append(pairs, ramp.Pair{Key: keys[i], Value: values[i]})
	}
	_, err := w.c.PutAll(context.Background(), pairs)
	return err
}

func (w libraryWay) get(keys [][]byte) (list [][]byte, err error) {
	values, err := w.c.GetAll(context.Background(), keys)
	for _, v := range values {
		if !v.Found {
			v.Value = nil
		}
		list = append(list, v.Value)
	}
	return list, err
}

// A respWay is a connection of RESP. It is used by one goroutine at a time.
type respWay struct {
	mu sync.Mutex
	c  net.Conn
	r  *bufio.Reader
}

func (w *respWay) do(args ...[]byte) error {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	_, err := w.c.Write(b)
	return err
}

func (w *respWay) line() (string, error) {
	s, err := w.r.ReadString('\n')
	if err != nil || len(s) < 3 {
		return "", errors.Join(err, io.ErrUnexpectedEOF)
	}
	if s[0] == '-' {
		return "", errors.New(s[1 : len(s)-2])
	}
	return s[:len(s)-2], nil
}

func (w *respWay) put(keys, values [][]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	args := [][]byte{[]byte("MSET")}
	for i := range keys {
		args = append(args, keys[i], values[i])
	}
	if err := w.do(args...); err != nil {
		return err
	}
	_, err := w.line()
	return err
}

func (w *respWay) get(keys [][]byte) (list [][]byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.do(append([][]byte{[]byte("MGET")}, keys...)...); err != nil {
		return nil, err
	}
	if _, err := w.line(); err != nil {
		return nil, err
	}
	for range keys {
		s, err := w.line()
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(s[1:])
		if err != nil || n < 0 {
			list = append(list, nil)
			continue
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(w.r, b); err != nil {
			return nil, err
		}
		list = append(list, b[:n])
	}
	return list, nil
}

// A subject is what a transaction writes or reads as a whole: the friendship of two persons, or a person and the
// index of cities.
type subject struct {
	name string
	keys [][]byte
}

func friendship(prefix string, a, b int) subject {
	return subject{fmt.Sprintf("%sfriends %d %d", prefix, a, b), [][]byte{fmt.Appendf(nil, "%sfriend:%d:%d", prefix, a, b), fmt.Appendf(nil, "%sfriend:%d:%d", prefix, b, a)}}
}

func person(prefix string, i int) subject {
	s := subject{fmt.Sprintf("%sperson %d", prefix, i), [][]byte{fmt.Appendf(nil, "%sperson:%d", prefix, i)}}
	for c := range rampCities {
		s.keys = append(s.keys, fmt.Appendf(nil, "%scity:%d:%d", prefix, c, i))
	}
	return s
}

// orphan returns a person with enough keys that they certainly belong to several partitions: a transaction of one
// partition has no phases between which a client could die.
func orphan(i int) subject {
	s := person("orphan:", i)
	for c := range 20 {
		s.keys = append(s.keys, fmt.Appendf(nil, "orphan:city:%d:%d", rampCities+c, i))
	}
	return s
}

// values returns the values that transaction number n of a subject writes. Each value has the number, so that any
// mixture is found; a person's values have the city as well.
func (s *subject) values(n int) (list [][]byte) {
	for i := range s.keys {
		switch {
		case len(s.keys) == 2:
			list = append(list, fmt.Appendf(nil, "%d friends since %d", n, 1900+n%100))
		case i == 0:
			list = append(list, fmt.Appendf(nil, "%d lives in city %d", n, n%rampCities))
		case i-1 == n%rampCities:
			list = append(list, fmt.Appendf(nil, "%d lives here", n))
		default:
			list = append(list, fmt.Appendf(nil, "%d", n))
		}
	}
	return list
}

// number returns the number of the transaction that wrote the values, 0 for none. whole is false if the values are
// not all of one transaction.
func (s *subject) number(values [][]byte) (n int, whole bool) {
	fmt.Sscanf(string(values[0]), "%d", &n)
	if n == 0 {
		return 0, !slices.ContainsFunc(values, func(v []byte) bool { return v != nil })
	}
	for i, want := range s.values(n) {
		if !bytes.Equal(want, values[i]) {
			return n, false
		}
	}
	return n, true
}
