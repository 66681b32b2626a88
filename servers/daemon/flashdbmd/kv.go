package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"flashdbm/servers/hydra"
)

const kvHelp = `flashdbmd kv [SETTINGS] COMMAND reads and writes keys of a running node by the client library.

  get KEY                 print the value; into a pipe or a file go exactly its bytes
  stat KEY                print version, size and expiry
  put KEY [VALUE]         set the key; without VALUE the value is standard input
  insert KEY [VALUE]      set the key if it is absent
  cas KEY VERSION [VALUE] set the key if it has this version; 0 stands for absent
  add KEY NUMBER          add to a decimal number, 0 if the key is absent; print the sum
  del KEY ...             remove keys
  scan                    print all keys, in no order
  sweep                   remove parts of values above 4 MiB that belong to no key:
                          programs that ended in the middle of a write left them

The exit code is 0 for done, 1 if a key is not there (insert: is there; cas: has
another version), 2 if the command line is wrong, 3 for anything else.

Settings; each is also a variable, such as FLASHDBMD_DIR:

`

// errAbsent is wrapped by errors whose exit code is 1.
var errAbsent = errors.New("nothing was done")

// kv is flashdbmd kv.
type kv struct {
	dir, addr, password string
	ttl, timeout        time.Duration
	prefix              string
	values, asJSON      bool
	limit               int

	in  io.Reader
	out io.Writer
}

func runKV(args []string, env func(string) (string, bool), in io.Reader, out io.Writer) error {
	k := &kv{in: in, out: out}
	f := newFlags("kv")
	f.StringVar(&k.dir, "dir", "", "directory of the node")
	f.StringVar(&k.addr, "addr", "", "address of the node instead: shm:PATH or tcp:HOST:PORT")
	f.StringVar(&k.password, "password", "", "the node's; better set as FLASHDBMD_PASSWORD")
	f.DurationVar(&k.timeout, "timeout", 10*time.Second, "how long to try")
	f.DurationVar(&k.ttl, "ttl", 0, "put, insert, cas: the key expires after this time; 0 is never")
	f.StringVar(&k.prefix, "prefix", "", "scan: keys that begin with this")
	f.IntVar(&k.limit, "limit", 0, "scan: print this many at most; 0 is all")
	f.BoolVar(&k.values, "values", false, "scan: print values too")
	f.BoolVar(&k.asJSON, "json", false, "get, stat, scan: print a JSON object a line; keys and values that are no UTF-8 are in base64, as key64 and value64")
	list, err := parseFlags(f, args, -1, env, io.Discard)
	switch {
	case errors.Is(err, flag.ErrHelp):
		io.WriteString(out, kvHelp)
		f.SetOutput(out)
		f.PrintDefaults()
		return err
	case err != nil:
		return err
	case len(list) == 0:
		return fmt.Errorf("flashdbmd kv: no command given; see flashdbmd kv --help (%w)", errUsage)
	case k.dir == "" && k.addr == "":
		return fmt.Errorf("which node? give --dir or --addr: %w", errUsage)
	case k.addr == "":
		k.addr = "shm:" + filepath.Join(k.dir, "node.sock")
	}
	run, err := k.command(list[0], list[1:])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), k.timeout)
	if list[0] == "scan" || list[0] == "sweep" { // these walk all keys: no time limit
		cancel()
		ctx, cancel = context.WithCancel(context.Background())
	}
	defer cancel()
	c, err := hydra.Dial(ctx, []string{k.addr}, &hydra.Options{Secret: []byte(k.password), Timeout: k.timeout})
	if err != nil {
		return fmt.Errorf("%s: %w", k.addr, err)
	}
	defer c.Close()
	return run(ctx, c)
}

// command checks the arguments of a command and returns the function that carries it out.
func (k *kv) command(name string, args []string) (func(context.Context, *hydra.Client) error, error) {
	takes := map[string][2]int{"get": {1, 1}, "stat": {1, 1}, "put": {1, 2}, "insert": {1, 2}, "cas": {2, 3}, "add": {2, 2}, "del": {1, 1 << 20}, "scan": {0, 0}, "sweep": {0, 0}}
	n, ok := takes[name]
	if !ok {
		return nil, fmt.Errorf("there is no command kv %q; see flashdbmd kv --help (%w)", name, errUsage)
	}
	if len(args) < n[0] || len(args) > n[1] {
		hint := ""
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") }) {
			hint = "settings stand before the command; "
		}
		return nil, fmt.Errorf("kv %s: %d arguments are too few or too many; %ssee flashdbmd kv --help (%w)", name, len(args), hint, errUsage)
	}
	number := func(text string) (int64, error) {
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("kv %s: %q is no whole number of 64 bits (%w)", name, text, errUsage)
		}
		return v, nil
	}
	switch name {
	case "get", "stat":
		return func(ctx context.Context, c *hydra.Client) error { return k.get(ctx, c, args[0], name == "stat") }, nil
	case "put", "insert":
		return func(ctx context.Context, c *hydra.Client) error {
			set := c.Put
			if name == "insert" {
				set = c.Insert
			}
			value, err := k.value(args[1:])
			if err == nil {
				_, err = set(ctx, []byte(args[0]), value, k.expiry())
			}
			return told(args[0], err)
		}, nil
	case "cas":
		old, err := strconv.ParseUint(args[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("kv cas: %q is no version (%w)", args[1], errUsage)
		}
		return func(ctx context.Context, c *hydra.Client) error {
			value, err := k.value(args[2:])
			var version uint64
			if err == nil {
				version, err = c.CompareAndSet(ctx, []byte(args[0]), old, value, k.expiry())
			}
			if err != nil {
				if errors.Is(err, hydra.ErrVersion) {
					err = fmt.Errorf("%w: %d", err, version)
				}
				return told(args[0], err)
			}
			_, err = fmt.Fprintln(k.out, version)
			return err
		}, nil
	case "add":
		by, err := number(args[1])
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, c *hydra.Client) error {
			sum, err := c.Add(ctx, []byte(args[0]), by)
			if err != nil {
				return told(args[0], err)
			}
			_, err = fmt.Fprintln(k.out, sum)
			return err
		}, nil
	case "del":
		return func(ctx context.Context, c *hydra.Client) (err error) {
			for _, key := range args {
				if derr := told(key, c.Delete(ctx, []byte(key))); derr != nil && (err == nil || errors.Is(err, errAbsent)) {
					err = derr
				}
			}
			return err
		}, nil
	case "sweep":
		return func(ctx context.Context, c *hydra.Client) error {
			n, err := c.Sweep(ctx)
			if err == nil {
				_, err = fmt.Fprintf(k.out, "%d parts were removed\n", n)
			}
			return err
		}, nil
	}
	return k.scan, nil
}

// told adds the key to an error, and makes errors with exit code 1 wrap errAbsent.
func told(key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hydra.ErrNotFound) || errors.Is(err, hydra.ErrExists) || errors.Is(err, hydra.ErrVersion):
		return fmt.Errorf("%q: %w (%w)", key, err, errAbsent)
	}
	return fmt.Errorf("%q: %w", key, err)
}

func (k *kv) expiry() hydra.Expiry {
	if k.ttl > 0 {
		return hydra.In(k.ttl)
	}
	return hydra.Expiry{}
}

// value returns the argument, or what standard input has.
func (k *kv) value(args []string) ([]byte, error) {
	if len(args) > 0 {
		return []byte(args[0]), nil
	}
	b, err := io.ReadAll(io.LimitReader(k.in, hydra.MaxLarge+1))
	if err == nil && len(b) > hydra.MaxLarge {
		err = fmt.Errorf("standard input is longer than a value may be, %d bytes: %w", hydra.MaxLarge, hydra.ErrTooLarge)
	}
	return b, err
}

// A line is an object that --json prints.
type line struct {
	Key     *string    `json:"key,omitempty"`
	Key64   []byte     `json:"key64,omitempty"`
	Value   *string    `json:"value,omitempty"`
	Value64 []byte     `json:"value64,omitempty"`
	Version uint64     `json:"version"`
	Size    *int       `json:"size,omitempty"`
	Expiry  *time.Time `json:"expiry,omitempty"`
}

func (k *kv) line(key []byte, i hydra.Item, value bool) line {
	l := line{Version: i.Version}
	if l.Key, l.Key64 = text(key); value {
		l.Value, l.Value64 = text(i.Value)
	}
	if !i.Expiry.IsZero() {
		at := i.Expiry.UTC()
		l.Expiry = &at
	}
	return l
}

func text(b []byte) (*string, []byte) {
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	return nil, b
}

func (k *kv) get(ctx context.Context, c *hydra.Client, key string, stat bool) error {
	i, err := c.GetItem(ctx, []byte(key))
	if err != nil {
		return told(key, err)
	}
	switch {
	case k.asJSON:
		l := k.line([]byte(key), i, !stat)
		n := len(i.Value)
		l.Size = &n
		return json.NewEncoder(k.out).Encode(l)
	case stat:
		ends := "never"
		if !i.Expiry.IsZero() {
			ends = i.Expiry.UTC().Format("2006-01-02T15:04:05.000Z")
		}
		_, err = fmt.Fprintf(k.out, "version %d\nsize %d\nexpiry %s\n", i.Version, len(i.Value), ends)
	case isTerminal(k.out):
		_, err = fmt.Fprintln(k.out, shown(i.Value))
	default:
		_, err = k.out.Write(i.Value)
	}
	return err
}

func (k *kv) scan(ctx context.Context, c *hydra.Client) error {
	w := bufio.NewWriter(k.out)
	e := json.NewEncoder(w)
	n := 0
	for entry, err := range c.Scan(ctx, &hydra.ScanOptions{KeysOnly: !k.values}) {
		if err != nil {
			return errors.Join(err, w.Flush())
		}
		if !strings.HasPrefix(string(entry.Key), k.prefix) {
			continue
		}
		switch {
		case k.asJSON:
			err = e.Encode(k.line(entry.Key, entry.Item, k.values))
		case k.values:
			_, err = fmt.Fprintf(w, "%s\t%s\n", shown(entry.Key), shown(entry.Value))
		default:
			_, err = fmt.Fprintln(w, shown(entry.Key))
		}
		if err != nil {
			return err
		}
		if n++; n == k.limit {
			break
		}
	}
	return w.Flush()
}

// shown returns bytes unchanged if they are printable text that does not begin with a quote, else in quotes with
// escapes.
func shown(b []byte) string {
	s := string(b)
	if !utf8.ValidString(s) || strings.HasPrefix(s, `"`) {
		return strconv.Quote(s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
