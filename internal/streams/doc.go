// Package streams writes the data of tests that kill a real process, or look at what the kernel has written back,
// and computes which of it must be there afterwards.
//
// A database holds several streams of transactions. The transactions of a stream are numbered from 1 and run one
// after the other; streams run concurrently. Its stream and its number determine what a transaction writes. The
// database also holds, for each stream, the number of the newest transaction; so these numbers determine all its
// records. The process notes in a file outside of the database, the [Record], which transactions it is about to run
// and which have returned. That file outlives the process. So after any kill or power cut, for each stream
//
//	the newest transaction promised <= the newest one found <= the newest one begun
//
// and all records are exactly those that the numbers found imply. In addition, transactions of the first few
// streams count themselves in one shared record. Each of them changes that record, so the count equals the sum of
// their numbers only if what was recovered is the state after some commit, with all earlier ones and no later one.
//
// Only tests import the package.
package streams
