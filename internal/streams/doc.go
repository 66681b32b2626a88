// Package streams is what the tests of a real process write, and how they tell what of it has to be there: the tests that kill the
// process, and those that look at what the kernel has written back.
//
// A database holds several streams of transactions. Those of a stream are numbered from 1 and run one after the other; streams run side
// by side. What a transaction writes follows from its stream and number alone, so that the records of a whole database follow from one
// number for each stream, which the database holds as well. A process says in a file outside of the database, the [Record], which
// transactions it is about to run and which have returned: that file outlives the process. So whatever happens to it or to the device,
// for each stream
//
//	the newest transaction promised <= the newest one found <= the newest one begun
//
// and all records are exactly those that the numbers found say. Transactions of the first few streams count themselves in one record
// as well; as each of them changes it, the sum of their numbers is that count only if what was recovered is the state after some commit,
// never with a later one and without an earlier one.
//
// Only tests import the package.
package streams
