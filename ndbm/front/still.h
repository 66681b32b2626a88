/*
 * A still tree: that of a file which nobody writes. The engine shows it, and a fetch finds its record there without a call of the engine,
 * which would take longer than the search.
 *
 * What is shown are the engine's own mapping of the file and its own sets of bits that say which pages it has verified and which have
 * moved; where to, in a table made for this, as the engine's is not for C to read: it cannot differ from that while nothing changes. Rules:
 *
 *  1. The engine shows the tree only while it holds the lock that readers share and all redo is in the tree. So nothing that is shown changes
 *     meanwhile, but that the engine verifies more pages.
 *  2. A reader trusts a page if its checked bit is set: then the engine has found its checksum right and its structure within the page. Where
 *     that is not so, where the engine has the page in memory, and where a key or value is not in the leaf, the engine is asked.
 *  3. Readers count themselves in and out. The engine hides the tree by a bit in the word in which they count themselves in, and goes on
 *     only when as many have left: whoever comes later sees the bit. So no reader is there when the mapping goes.
 *     But one that a handler of the program's has left by longjmp never leaves. After a second the engine goes on without it: the mapping
 *     and all else that was shown stay for ever, and no tree is shown there again. Should the reader only have been slow, it finds the tree
 *     hidden when it is done, and asks the engine: what it read may have changed.
 *  4. A page that cannot be read (a file cut short by somebody), or a key, is a signal: then the reader leaves, and the engine is asked, and
 *     answers with an error.
 *  5. A forked child has the counts and not the mapping: still_forget, before its first call. Of the readers only its own thread's is there.
 *
 * Memory order. The engine stores what it shows, then clears the bit; the reader's addition to entered acquires what came before. The reader has
 * read when it adds to left, a release, and the engine reads left before it changes anything. Of two locked operations on entered one comes
 * first: either the reader sees the bit, or the engine sees the reader.
 */
#ifndef FLASHDBM_STILL_H
#define FLASHDBM_STILL_H

#include <stddef.h>
#include <stdint.h>

#define STILL_HIDDEN ((uint64_t)1 << 63)
#define STILL_CHUNKS 64 /* 64 GiB; a larger file is not shown */

struct still_chunk { /* of the file, 1 << shift pages */
	const unsigned char *pages;
	const uint64_t *checked, *overridden; /* sets of them, a bit for each */
};

struct still_moved {
	uint64_t name; /* 0: a free place */
	uint64_t at;   /* address, in pages */
};

/* ../still.go has the same. */
struct still {
	uint64_t entered; /* readers, and STILL_HIDDEN */
	uint64_t left;    /* readers that have gone */
	uint64_t root;    /* name of the root */
	const struct still_moved *moved; /* a hash table */
	uint64_t places;                 /* of it, a power of two; some are free */
	uint32_t shift, chunks;
	struct still_chunk chunk[STILL_CHUNKS];
};

/* What still_fetch returns if the engine has to be asked. */
#define STILL_ASK (-1)

/* As struct engine's fetch, or STILL_ASK. */
int still_fetch(struct still *s, const void *key, size_t key_size, void *reply, size_t room, size_t *size);

/* Nothing is shown: at first, and in a child after fork. */
void still_forget(struct still *s);

/* Whether a reader has not left, nor may ever: then this memory must stay. */
int still_busy(const struct still *s);

/* Catches the signals of rule 4. Before the engine is started for the first time, whose handler hands on to this one what is not its own. */
void still_guard(void);

#endif
