package resp

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra"
	"flashdbm/servers/hydra/machine"
	"flashdbm/servers/shard"
)

var histories = flag.Int("linear.histories", 3, "histories that TestLinear checks")

// A keyCall is an operation on one key: get, set, insert (only if there is none), or delete.
type keyCall struct{ key, op, value string }

// A keyAnswer is the result of a keyCall: for get the value, empty if there is none; for insert and delete whether
// they changed something.
type keyAnswer struct {
	value   string
	changed bool
}

// keys is the model: a key has a value, or none.
var keys = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(keyCall).key
			by[k] = append(by[k], o)
		}
		var parts [][]porcupine.Operation
		for _, p := range by {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		was, c, got := state.(string), input.(keyCall), output.(keyAnswer)
		switch c.op {
		case "get":
			return got.value == was, was
		case "set":
			return true, c.value
		case "insert":
			if was == "" {
				return got.changed, c.value
			}
			return !got.changed, was
		default:
			return got.changed == (was != ""), ""
		}
	},
}

// TestLinear has clients of both kinds work on the same few keys. The clients of the library make one-sided Reads.
// Every history is linearizable.
func TestLinear(t *testing.T) {
	network := mem.NewNetwork()
	served, own := network.Open(), network.Open()
	n, err := machine.Open(machine.Options{
		Dir: t.TempDir(), Shards: 2, Durability: shard.Async, Extent: 16 << 20,
		Listen: []machine.Listen{{Domain: served, Addr: "node", Public: "mem:node"}},
	})
	require.NoError(t, err)
	proxy, err := hydra.Local(n, nil)
	require.NoError(t, err)
	var libraries [2]*hydra.Client
	for i := range libraries {
		libraries[i], err = hydra.Dial(t.Context(), []string{"mem:node"}, &hydra.Options{Fabrics: map[string]fabric.Domain{"mem": own}})
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		for _, c := range append(libraries[:], proxy) {
			assert.NoError(t, c.Close())
		}
		assert.NoError(t, own.Close())
		assert.NoError(t, n.Close())
		assert.NoError(t, served.Close())
	})
	_, addr := serve(t, proxy, Config{})
	var clients []func(keyCall) (keyAnswer, error)
	for range 2 {
		c := dial(t, addr)
		clients = append(clients, func(k keyCall) (keyAnswer, error) { return callRESP(c, k) })
	}
	for _, c := range libraries {
		clients = append(clients, func(k keyCall) (keyAnswer, error) { return callLibrary(t.Context(), c, k) })
	}

	operations := 0
	for round := range *histories {
		began := time.Now()
		var mu sync.Mutex
		var history []porcupine.Operation
		var all sync.WaitGroup
		for id, do := range clients {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(round), uint64(id)))
				for i := range 60 {
					k := keyCall{fmt.Sprint("key", round, "-", r.IntN(3)), "get", fmt.Sprint(id, "-", i)}
					switch p := r.IntN(100); {
					case p < 20:
						k.op = "set"
					case p < 27:
						k.op = "insert"
					case p < 34:
						k.op = "delete"
					}
					call := time.Since(began)
					got, err := do(k)
					o := porcupine.Operation{ClientId: id, Input: k, Output: got, Call: call.Nanoseconds(), Return: time.Since(began).Nanoseconds()}
					if !assert.NoError(t, err) {
						return
					}
					mu.Lock()
					history = append(history, o)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		operations += len(history)
		require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(keys, history, time.Minute), "history %d", round)
	}
	reads := libraries[0].Stats().OneSided + libraries[1].Stats().OneSided
	t.Logf("%d histories, %d operations, %d of them one-sided Reads", *histories, operations, reads)
	assert.Positive(t, reads)
}

func callRESP(c redis.Conn, k keyCall) (a keyAnswer, err error) {
	switch k.op {
	case "get":
		a.value, err = redis.String(c.Do("GET", k.key))
	case "set":
		_, err = c.Do("SET", k.key, k.value)
	case "insert":
		a.changed, err = redis.Bool(c.Do("SETNX", k.key, k.value))
	default:
		a.changed, err = redis.Bool(c.Do("DEL", k.key))
	}
	if errors.Is(err, redis.ErrNil) {
		err = nil
	}
	return a, err
}

func callLibrary(ctx context.Context, c *hydra.Client, k keyCall) (a keyAnswer, err error) {
	switch k.op {
	case "get":
		var b []byte
		b, err = c.Get(ctx, []byte(k.key))
		a.value = string(b)
	case "set":
		_, err = c.Put(ctx, []byte(k.key), []byte(k.value))
	case "insert":
		_, err = c.Insert(ctx, []byte(k.key), []byte(k.value))
		a.changed = err == nil
	default:
		err = c.Delete(ctx, []byte(k.key))
		a.changed = err == nil
	}
	if errors.Is(err, hydra.ErrNotFound) || errors.Is(err, hydra.ErrExists) {
		err = nil
	}
	return a, err
}
