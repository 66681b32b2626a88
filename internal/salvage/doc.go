// Package salvage recovers the records of a damaged database file. It reads the file and never writes to it.
//
// # What is recovered
//
// All pages of the file are read. Pages whose checksum is right under the salt of their segment are sound; they are
// indexed by the group that wrote them (see pagefile). That needs neither a superblock nor a complete log. If the
// header of a segment is lost, its salt is found in the next header of the log, in a checkpoint, or from two pages
// that imply the same salt. Otherwise no page of the segment can be distinguished from a damaged one, except a
// value (see run). Then:
//
//  1. The newest checkpoint whose pages are all sound gives the translation table, the map of the pages in use, and
//     the group whose state the tree has. Whether a superblock names the checkpoint does not matter.
//  2. The page groups and flushes after the checkpoint are installed in order, as by recovery, up to the first
//     damage in the log. After the damage nothing is installed: the content of later pages, and all redo
//     records, become facts. A fact is the last statement of a group about a key.
//  3. The tree is walked from its root. If a page cannot be read, the range of keys that its parent gives it is
//     lost, and no other.
//  4. Leaves in lost ranges are found among all sound pages, if the map says that they are in use.
//  5. Of a leaf and a fact, the newer one wins. A leaf that recovery would find has the state of the redo start
//     or of a later group; a fact has that of its group.
//
// Without a checkpoint the newest image of each name counts, and all leaves are taken as in step 4, newest first,
// because it is unknown whether a leaf is still in use.
//
// # What counts as recovered
//
// A record is recovered if its newest version, or one of several pages that hold this version, is sound, with all
// pages of its value. If a later group exists, the sound pages of a group with missing pages count, because a
// group is written only after the previous one. The newest group of all counts only if it is complete: otherwise
// it cannot be told from a commit cut short. end.go says what shows that later groups are lost.
//
// No record is made up: some commit wrote each record in this form. An older version of a record can come back
// only if the page with the newer version, or with its deletion, is damaged and no other page has the newer
// version. If a leaf is known to be damaged, its older images are left out, unless Options.Older asks for them;
// each record from them is reported.
//
// # Bounds
//
// Memory is about 40 bytes for each sound page, and the redo records after the checkpoint, or of the whole file if
// there is no checkpoint. Each page of the tree, each value and each page of a value is read for only one
// reference, so a malicious file cannot cost more than its size.
package salvage
