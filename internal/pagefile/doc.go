// Package pagefile reads the pages of a database file without opening it as a database: for programs that look at damaged files, or show
// what a file holds. It finds out the size of a segment, the salts of the segments, and so which pages are those that the writer wrote.
//
// # What makes a page sound
//
// The checksum of a page covers the salt of its segment and the page's address. So a page is known to be sound only if the salt of its
// segment's present life is. The salt is in the segment's header, which its page has twice. If both copies are lost, the salt may be known
// from the space map of a checkpoint (see NoteSalt) or from the header of the next segment of the log, which has it as predecessor. Else the
// pages themselves tell: each implies what a salt must come to for the page's checksum to be right, and several pages that imply the same
// were written under one salt.
//
// # Limits
//
// The file is opened to be read, and locked against a writer if it can be. It is read with bounded buffers. What a page says is a claim
// that any file can make: callers bound what they do by pages that are there. Holes of the file are passed over.
//
// A File is used by one goroutine at a time.
package pagefile
