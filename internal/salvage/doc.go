// Package salvage recovers the records of a damaged database file. It reads the file and never writes to it.
//
// # What is recovered
//
// Every page of the file is looked at, and those whose checksum is right under their segment's salt are indexed by the group that wrote them
// (see pagefile). That needs neither a superblock nor a whole log. Then:
//
//  1. The newest checkpoint whose pages are all there gives the translation table, the map of the pages in use, and the group that the tree is
//     as of. Whether a superblock names it does not matter.
//  2. The page groups and flushes behind it are installed in order, as recovery would, up to the first damage in the log. From there on
//     nothing is installed. What such pages hold, and all redo records, become facts: of a key, what a group said of it last.
//  3. The tree is walked from its root. A page that cannot be read loses the range of keys that its parent gives it, and no other.
//  4. Leaves that lie in a lost range and are in use by the map are found by looking at all pages.
//  5. Of a leaf and a fact the newer one counts: a leaf that recovery would find is as of the redo start or newer, a fact as of its group.
//
// Without any checkpoint the newest image of each name counts, and all leaves are taken as in step 4, the newest first: whether a leaf is in use
// still is not known then.
//
// # What counts as recovered
//
// A record comes back if its newest version, or one of several pages that hold that, is sound, with all pages of its value. A group of which
// pages are missing counts, as far as it is there, if a later group exists: no group is written before the one before it is. The newest group of
// all does not, unless it is whole: it cannot be told from a commit cut short.
//
// Nothing is invented: each record was written as it is by some commit. It may be an older version only if the page with the newer version, or
// with the deletion, is damaged, and nothing tells that. Where it is known that a leaf is damaged, older images of it are left out, unless
// they are asked for (Options.Older); each of these records is reported.
//
// # Bounds
//
// Memory is about 40 bytes for each sound page, and the redo records behind the checkpoint, or of the whole file if there is no checkpoint. Each
// page of the tree, each value and each page of a value is read for one reference only, so a file made to do harm cannot take more than its
// size.
package salvage
