// Package sim is a simulated cluster: nodes with clocks and threads, and a fabric between them. Everything happens in one goroutine, in
// virtual time, as a seed decides; the same seed and the same calls give the same run.
//
// A World owns virtual time and is the only scheduler. Whatever happens is an event of the World: a step of a thread, a few words of an
// operation that arrive, a completion, a function given to After. An event is never interrupted, so events need no locks.
//
//	w := sim.New(seed, sim.Faults{})
//	a, b := w.NewNode("a"), w.NewNode("b")
//	d := a.Domain()                      // a fabric.Domain of a's present incarnation
//	thread := a.Go("shard", step, queue) // step(now) (worked, next) is called again and again
//	w.Run(10 * time.Second)
//
// Threads. A step function has the form of every protocol part of the servers: it does what there is to do at its node's time now and
// says whether it worked. If it did, it is called again soon: after Faults.Pace, now and then after a pause of up to Faults.Stall. If it
// did not, it is called at next (at once is allowed, that is spinning; the zero time stands for never), or earlier, as soon as one of
// the queues given to Go has a completion or has been notified, or somebody calls Thread.Wake. A plain Write of a peer wakes nobody. A
// step function calls nothing that blocks.
//
// Clocks. Node.Now is what the node's programs take for time.Now: it runs up to Faults.Drift fast or slow against World.Now, and each
// node's begins elsewhere. Node.Wall is the node's idea of the date; it follows Node.Now, and differs after JumpWall or Suspend.
//
// What may happen to a node:
//
//	Stop     its threads do nothing until Resume, as after SIGSTOP; time goes on, its memory can be read and written by peers, and words of
//	         Writes that it had begun may be held back until Resume.
//	Suspend  Stop, and its monotonic clock stands still too, as that of a suspended machine.
//	Kill     its threads are gone, and everything that came from its domain. Peers may go on reading and writing its memory for up to
//	         fabric.Timeout, as with a process that has died and whose end nobody has noticed. Words of its own Writes may come late.
//	Restart  a new incarnation after Kill, with new memory; its threads are registered anew.
//
// What may happen between nodes: Cut loses what one node sends to another one, in that direction only, until Heal. An operation needs
// both directions; when the way back is cut it happens, and its initiator learns ErrTimeout.
//
// Operations move a few words at a time, in random order, at random times, with steps of all threads between; see Faults for delays and
// losses. The fabric promises what package fabric says and takes every liberty that is left.
//
// Blocking calls. Dial, Accept and Queue.Wait run the World, from outside of its events, until they can return. The simulator of a
// cluster uses Domain.DialFunc, Listener.Handle and step functions instead.
//
// One goroutine uses a World and all that belongs to it.
package sim
