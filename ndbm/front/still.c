/* See still.h. The layout of pages is docs/format.md's; the searches are those of internal/btree/search.go. */
#define _GNU_SOURCE
#include "still.h"

#include <endian.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#define PAGE 4096
#define KIND_AT 4
#define KIND_TREE 1
#define NAME_AT 8
#define NODE_AT 40  /* level 1 byte | flags 1 | count 2 | prefix 2 | bytes of the cells 2 */
#define HEADS_AT 48 /* heads 4 bytes each, slots */
#define HEAD 4
#define LEAF_SLOT 6  /* offset 2 bytes | key length 2 | value length 2 */
#define INNER_SLOT 4 /* offset 2 bytes | separator length 2 */
#define CHILD 8
#define LENGTH 0xFFF /* of a length; above are flags */
#define NOT_INLINE 0xF000
#define CUT 0x8000
#define MAX_COUNT 405
#define MAX_LEVEL 40
#define MAX_SEPARATOR 496
#define MAX_KEY 1000 /* longer ones are not in the leaf */
#define BORN ((uint64_t)1 << 63) /* in a name that is not an address */

#define LINE 64
#define LEAF_AHEAD 384   /* bytes of a leaf's header, heads and slots, if records have a hundred bytes */
#define INNER_AHEAD 1024 /* of an inner node's header and heads */
#define NEAR 32

struct node {
	const unsigned char *page;
	unsigned level, count, prefix;
};

static unsigned load16(const unsigned char *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof v);
	return le16toh(v);
}

static uint32_t load32(const unsigned char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return le32toh(v);
}

static uint64_t load64(const unsigned char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return le64toh(v);
}

/* The first four bytes as they compare, padded with zeros. */
static uint32_t head_of(const unsigned char *key, size_t size)
{
	uint32_t v = 0;

	memcpy(&v, key, size < sizeof v ? size : sizeof v);
	return be32toh(v);
}

static int has(const uint64_t *set, uint64_t at)
{
	return __atomic_load_n(&set[at / 64], __ATOMIC_ACQUIRE) >> (at % 64) & 1;
}

/* Where the page with a name lies, 0 if the table does not know. */
static uint64_t place_of(const struct still *s, uint64_t name)
{
	uint64_t i = name * 0x9E3779B97F4A7C15u >> 32;

	for (;; i++) {
		const struct still_moved *m = &s->moved[i & (s->places - 1)];

		if (m->name == name || m->name == 0)
			return m->name == 0 ? 0 : m->at;
	}
}

/* The verified page with a name, or NULL: ask. One that has moved bears its name. */
static const unsigned char *page_of(const struct still *s, uint64_t name)
{
	uint64_t mask = ((uint64_t)1 << s->shift) - 1, at = name;
	const struct still_chunk *c;
	const unsigned char *page;

	if ((name & BORN) != 0 || name >> s->shift >= s->chunks || has(s->chunk[name >> s->shift].overridden, name & mask)) {
		at = place_of(s, name);
		if (at == 0 || at >> s->shift >= s->chunks)
			return NULL;
	}
	c = &s->chunk[at >> s->shift];
	if (!has(c->checked, at & mask))
		return NULL;
	page = c->pages + (at & mask) * PAGE;
	return at == name || load64(page + NAME_AT) == name ? page : NULL;
}

static int open_node(struct node *n, const unsigned char *page)
{
	n->page = page;
	n->level = page[NODE_AT];
	n->count = load16(page + NODE_AT + 2);
	n->prefix = load16(page + NODE_AT + 4);
	return page[KIND_AT] == KIND_TREE && n->level <= MAX_LEVEL && n->count <= MAX_COUNT;
}

static uint32_t head(const struct node *n, unsigned i) { return load32(n->page + HEADS_AT + i * HEAD); }

static void prefetch(const unsigned char *from, size_t size)
{
	size_t at;

	for (at = 0; at < size; at += LINE)
		__builtin_prefetch(from + at);
}

/*
 * How many heads are at or below h: seven at a time, whose cache lines arrive together, and without branches that depend on them. next is an
 * array of 8 bytes for each head: those near the answer will be wanted.
 */
static inline unsigned upper(const struct node *n, uint32_t h, const unsigned char *next)
{
	unsigned low = 0, rest = n->count, step, k, i;

	while (rest > 8) { /* the answer is from low to low + rest */
		step = rest >> 3;
		for (k = 0, i = 1; i < 8; i++)
			k += head(n, low + i * step - 1) <= h;
		low += k * step;
		rest -= 7 * step;
		if (next != NULL && rest <= NEAR)
			prefetch(next + low * CHILD, rest * CHILD);
	}
	if (n->count < 8) {
		for (k = 0, i = 0; i < n->count; i++)
			k += head(n, i) <= h;
		return k;
	}
	if (low > n->count - 8)
		low = n->count - 8;
	for (k = 0, i = 0; i < 8; i++)
		k += head(n, low + i) <= h;
	return low + k;
}

static int compare(const unsigned char *a, size_t a_size, const unsigned char *b, size_t b_size)
{
	int o = memcmp(a, b, a_size < b_size ? a_size : b_size);

	return o != 0 ? o : (a_size > b_size) - (a_size < b_size);
}

/* Whether a key, of which rest comes after the common prefix, is at or above separator i, whose head it has; or STILL_ASK. */
static int reaches(const struct node *n, unsigned i, const unsigned char *rest, size_t size)
{
	const unsigned char *slot = n->page + HEADS_AT + n->count * HEAD + i * INNER_SLOT;
	unsigned offset = load16(slot), length = load16(slot + 2), tail;

	tail = (length & LENGTH) > HEAD ? (length & LENGTH) - HEAD : 0;
	if (size < (length & LENGTH) && size <= HEAD)
		return 0;
	if (length & CUT) /* stands for the first key below the child */
		return STILL_ASK;
	if (offset + tail > PAGE)
		return STILL_ASK;
	return tail == 0 || compare(rest + HEAD, size - HEAD, n->page + offset, tail) >= 0;
}

/* The child of an inner node below which a key belongs, or STILL_ASK. */
static int route(const struct node *n, const unsigned char *key, size_t size)
{
	uint32_t h;
	int i, at_or_above;

	if (n->count == 0)
		return STILL_ASK;
	if (n->prefix > 0) {
		const unsigned char *common = n->page + HEADS_AT + n->count * (HEAD + INNER_SLOT + CHILD);
		int o;

		if (common + n->prefix > n->page + PAGE)
			return STILL_ASK;
		o = compare(key, size < n->prefix ? size : n->prefix, common, n->prefix);
		if (o != 0)
			return o < 0 ? 0 : (int)n->count - 1;
	}
	key += n->prefix;
	size = (size < MAX_SEPARATOR ? size : MAX_SEPARATOR) - n->prefix;
	h = head_of(key, size);
	for (i = (int)upper(n, h, n->page + HEADS_AT + n->count * (HEAD + INNER_SLOT)) - 1; i > 0 && head(n, (unsigned)i) == h; i--) {
		at_or_above = reaches(n, (unsigned)i, key, size);
		if (at_or_above != 0)
			return at_or_above < 0 ? STILL_ASK : i;
	}
	return i > 0 ? i : 0;
}

/* Looks for a key in a leaf. */
static int look(const struct node *n, const unsigned char *key, size_t size, void *reply, size_t room, size_t *found)
{
	const unsigned char *slots = n->page + HEADS_AT + n->count * HEAD, *slot;
	unsigned offset, key_size, value_size;
	uint32_t h;
	int i;

	if (size < n->prefix)
		return 0;
	h = head_of(key + n->prefix, size - n->prefix);
	for (i = (int)upper(n, h, NULL) - 1; i >= 0 && head(n, (unsigned)i) == h; i--) {
		slot = slots + i * LEAF_SLOT;
		offset = load16(slot);
		key_size = load16(slot + 2);
		value_size = load16(slot + 4);
		if (key_size != size) /* also if it is a long one, by its flag */
			continue;
		if (offset + key_size + (value_size & LENGTH) > PAGE)
			return STILL_ASK;
		if (memcmp(key, n->page + offset, size) != 0)
			continue;
		if (value_size & NOT_INLINE)
			return STILL_ASK;
		*found = value_size;
		if (value_size <= room)
			memcpy(reply, n->page + offset + key_size, value_size);
		return 1;
	}
	return 0;
}

static int find(const struct still *s, const unsigned char *key, size_t size, void *reply, size_t room, size_t *found)
{
	const unsigned char *page = page_of(s, s->root);
	unsigned above;
	struct node n;
	int i;

	if (page == NULL || !open_node(&n, page))
		return STILL_ASK;
	while (n.level > 0) {
		i = route(&n, key, size);
		if (i < 0)
			return STILL_ASK;
		page = page_of(s, load64(n.page + HEADS_AT + n.count * (HEAD + INNER_SLOT) + (unsigned)i * CHILD));
		if (page == NULL)
			return STILL_ASK;
		prefetch(page, n.level == 1 ? LEAF_AHEAD : INNER_AHEAD);
		above = n.level;
		if (!open_node(&n, page) || n.level != above - 1)
			return STILL_ASK;
	}
	return look(&n, key, size, reply, room, found);
}

/* ---- coming and going ---- */

/* The reader in this thread: the way out of it, NULL if there is none, and what it reads. One that a handler has left by a jump stays. */
static __thread struct {
	sigjmp_buf *way_out;
	const struct still *still;
	const unsigned char *key;
	size_t key_size;
} reader __attribute__((tls_model("initial-exec")));

static int within(const void *at, const void *from, size_t size) { return (uintptr_t)at - (uintptr_t)from < size; }

static int hidden(const struct still *s) { return (__atomic_load_n(&s->entered, __ATOMIC_RELAXED) & STILL_HIDDEN) != 0; }

int still_fetch(struct still *s, const void *key, size_t key_size, void *reply, size_t room, size_t *size)
{
	volatile int ret = STILL_ASK;
	sigjmp_buf here;

	if (key_size > MAX_KEY || hidden(s) || __atomic_load_n(&reader.way_out, __ATOMIC_RELAXED) != NULL)
		return STILL_ASK;
	if (within(key, reply, room)) /* the engine may have to be asked when there is a value in its place */
		return STILL_ASK;
	if ((__atomic_fetch_add(&s->entered, 1, __ATOMIC_ACQUIRE) & STILL_HIDDEN) == 0) {
		if (sigsetjmp(here, 0) == 0) {
			reader.still = s;
			reader.key = key;
			reader.key_size = key_size;
			__atomic_signal_fence(__ATOMIC_SEQ_CST);
			__atomic_store_n(&reader.way_out, &here, __ATOMIC_RELAXED);
			__atomic_signal_fence(__ATOMIC_SEQ_CST);
			ret = find(s, key, key_size, reply, room, size);
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			if (hidden(s))
				ret = STILL_ASK;
		}
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		__atomic_store_n(&reader.way_out, NULL, __ATOMIC_RELAXED);
	}
	__atomic_fetch_add(&s->left, 1, __ATOMIC_RELEASE);
	return ret;
}

void still_forget(struct still *s)
{
	uint64_t own = __atomic_load_n(&reader.way_out, __ATOMIC_RELAXED) != NULL && reader.still == s;

	__atomic_store_n(&s->entered, STILL_HIDDEN | own, __ATOMIC_RELAXED);
	__atomic_store_n(&s->left, 0, __ATOMIC_RELAXED);
}

int still_busy(const struct still *s)
{
	return (__atomic_load_n(&s->entered, __ATOMIC_ACQUIRE) & ~STILL_HIDDEN) != __atomic_load_n(&s->left, __ATOMIC_ACQUIRE);
}

/* ---- memory that cannot be read ---- */

static const int faults[] = {SIGBUS, SIGSEGV};
static struct sigaction before[sizeof faults / sizeof faults[0]];

/*
 * Whether this thread's reader may have met a fault there. Faults of the program's own are not its affair, though it may seem to be there
 * still, since a handler left it by a jump. What has no address is a key's, at one that cannot be.
 */
static int readers(const siginfo_t *info)
{
	const struct still *s = reader.still;
	uint32_t i;

	if (__atomic_load_n(&reader.way_out, __ATOMIC_RELAXED) == NULL || info->si_code <= 0) /* sent by a process */
		return 0;
	if (info->si_code == SI_KERNEL || within(info->si_addr, reader.key, reader.key_size))
		return 1;
	for (i = 0; i < s->chunks; i++)
		if (within(info->si_addr, s->chunk[i].pages, (size_t)PAGE << s->shift))
			return 1;
	return 0;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	const struct sigaction *old = &before[sig == SIGSEGV];

	if (readers(info)) {
		sigjmp_buf *out = reader.way_out;

		reader.way_out = NULL;
		sigprocmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
		siglongjmp(*out, 1);
	}
	if (old->sa_flags & SA_SIGINFO) {
		old->sa_sigaction(sig, info, context);
	} else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
		old->sa_handler(sig);
	} else { /* as it would have been: when this returns, the thread ends the program */
		signal(sig, SIG_DFL);
		if (info->si_code <= 0)
			raise(sig);
	}
}

void still_guard(void)
{
	static int done;
	struct sigaction sa;
	size_t i;

	if (done)
		return;
	done = 1;
	memset(&sa, 0, sizeof sa);
	sa.sa_sigaction = on_fault;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
	sigfillset(&sa.sa_mask);
	for (i = 0; i < sizeof faults / sizeof faults[0]; i++)
		if (sigaction(faults[i], NULL, &before[i]) == 0)
			sigaction(faults[i], &sa, NULL);
}
