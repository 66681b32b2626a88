// Package salvage recovers the records of a damaged database file. It reads the file and never writes to it.
//
// # What is recovered
//
// All pages of the file are read. Pages whose checksum is right under the salt of their segment are sound; they are
// indexed by the group that wrote them (see pagefile). That needs neither a superblock nor a complete log. If the
// header of a segment is lost, the next header of the log, a checkpoint, or two pages that imply the same salt show
// it. Otherwise no page of the segment can be told from a damaged one, except a value, see run. Then:
//
//  1. The newest checkpoint whose pages are all sound gives the translation table, the map of the pages in use, and
//     the group as of which the tree is. Whether a superblock names the checkpoint does not matter.
//  2. The page groups and flushes behind the checkpoint are installed in order, as by recovery, up to the first
//     damage in the log. Behind it nothing is installed: the content of later pages, and all redo records, become
//     facts. A fact is what a group said last of a key.
//  3. The tree is walked from its root. If a page cannot be read, the range of keys that its parent gives it is
//     lost, and no other.
//  4. Leaves in lost ranges are found among all sound pages, if the map says that they are in use.
//  5. Between a leaf and a fact, the newer one counts. A leaf that recovery would find is as of the redo start or
//     newer; a fact is as of its group.
//
// Without a checkpoint the newest image of each name counts, and all leaves are taken as in step 4, newest first,
// because it is unknown whether a leaf is still in use.
//
// # What counts as recovered
//
// A record is recovered if its newest version, or one of several pages that hold this version, is sound, with all
// pages of its value. A group with missing pages counts, as far as its pages are sound, if a later group exists,
// because a group is written only after the one before it. The newest group of all counts only if it is complete:
// otherwise it cannot be told from a commit cut short. end.go says what shows that later groups are lost.
//
// Nothing is invented: each record was written in this form by some commit. An older version of a record can come
// back only if the page with the newer version, or with its deletion, is damaged and nothing else tells of the
// newer version. If a leaf is known to be damaged, its older images are left out, unless Options.Older asks for
// them; each record from them is reported.
//
// # Bounds
//
// Memory is about 40 bytes for each sound page, and the redo records behind the checkpoint, or of the whole file if
// there is no checkpoint. Each page of the tree, each value and each page of a value is read for only one
// reference, so a malicious file cannot cost more than its size.
package salvage
