// Package hydra is the client of a flashdbm cluster that HydraDB serves: a key-value store whose values are Read
// one-sidedly if the fabric can do that.
//
//	c, err := hydra.Dial(ctx, []string{"shm:/run/flashdbm/n1.sock"}, nil)
//	version, err := c.Put(ctx, key, value)
//	value, err := c.Get(ctx, key)
//
// A Client connects to all shards and keeps the connections. All goroutines of the process may use it: they share its
// connections, and its cache of pointers. A Client does not keep keys and values after the call that passes them; the
// caller owns what a call returns.
//
// # Guarantees
//
// A call returns nil once its effect is as durable as the cluster's mode promises. A write is applied at most once,
// even if it is sent several times: each write carries a number of the client, and a shard answers a known number
// instead of applying the write again. If a shard has lost the numbers (it was restarted while the write was under
// way), or if the context ends first, the error is ErrUnknownOutcome: the write may or may not have been applied. Any
// other error means that it was not applied.
//
// # How it works
//
// If the fabric lets any goroutine Read (shm), the caller of a GET with a valid pointer makes the Read itself: see
// sight.go. All other calls go through the engine.
//
// The engine is single-threaded: it starts calls, and its Step moves messages and completions. It has no goroutine of
// its own. A caller that finds it free becomes the driver and steps it until its own call is done, without any
// handoff; callers that find it busy leave their calls to the driver, whose next Flush sends them with one doorbell.
// A driver that is done wakes a waiting caller, which continues.
//
// A program that has the node in its own process uses Local instead of Dial: its calls are function calls, see
// line.go and package machine.
//
// A GET that returned a pointer is repeated one-sidedly, by a Read of the item at the shard. The copy is valid under
// these rules:
//
//  1. The reign that gave the pointer has tenure before the Read is posted: it certainly still owns the key.
//  2. The pointer's lease lasts at the Read's completion: the place has not been reused.
//  3. The guardian is the hash of the copy, and the item's key is the requested one (package guard).
//  4. Tenure and lease are counted from before their request was sent, by this process's clock, less 1/64 because
//     clocks run at different rates.
//  5. If the wall clock and the monotonic clock diverge by more than 100 ms between two readings, the machine was
//     suspended: all tenures and leases have ended.
//
// Otherwise the GET is sent as a message.
package hydra
