// Package pagefile reads the pages of a database file without opening a database: for programs that examine damaged
// files, or show what a file holds. It finds out the size of a segment and the salts of the segments, and with
// these which pages the writer wrote.
//
// # What makes a page sound
//
// The checksum of a page covers the page's address and the salt of its segment. So a page can be verified only if
// the salt of its segment's present life is known. The segment's header has the salt, in two copies in one page. If
// both copies are lost, the salt may be known from the space map of a checkpoint (see NoteSalt), or as predecessor
// from the header of the next segment of the log. Otherwise the seed is found from the pages themselves: each page
// implies the seed with which its checksum would be right, and several pages that imply the same seed were written
// under one salt.
//
// # Limits
//
// The file is opened for reading, and locked against writers. It is read with bounded buffers, and its holes are
// skipped. Any field of a page may be false: callers must bound their work by the number of pages that exist.
//
// A File may be used by one goroutine at a time.
package pagefile
