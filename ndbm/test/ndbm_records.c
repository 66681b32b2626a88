/* Records: storing, fetching, deleting, iterating, errors, memory. */
#define _GNU_SOURCE
#include "records.h"

#include "checks.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void store_and_fetch(void)
{
	DBM *db = open_new();

	CHECK(dbm_store(db, text("k"), text("v"), DBM_INSERT) == 0);
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	CHECK(dbm_store(db, text("k"), text("longer"), DBM_REPLACE) == 0);
	CHECK(is(dbm_fetch(db, text("k")), "longer"));
	CHECK(dbm_store(db, text("k2"), text("v"), DBM_REPLACE) == 0);
	CHECK(count(db) == 2);
	dbm_close(db);
}

static void insert_existing(void)
{
	DBM *db = open_new();

	put(db, "k", "v");
	CHECK(dbm_store(db, text("k"), text("other"), DBM_INSERT) == 1);
	CHECK(!dbm_error(db) && is(dbm_fetch(db, text("k")), "v"));
	CHECK(dbm_store(db, text("k"), text("other"), DBM_REPLACE) == 0);
	CHECK(is(dbm_fetch(db, text("k")), "other"));
	dbm_close(db);
}

static void read_only_handle(void)
{
	DBM *db = open_new();

	put(db, "k", "v");
	dbm_close(db);
	db = open_with(O_RDONLY);
	errno = 0;
	CHECK(dbm_store(db, text("k"), text("w"), DBM_REPLACE) == -1 && errno == EPERM);
	CHECK(!dbm_error(db));
	errno = 0;
	CHECK(dbm_delete(db, text("k")) == -1 && errno == EPERM);
	CHECK(!dbm_error(db) && is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
}

static void delete_record(void)
{
	DBM *db = open_new();

	put(db, "k", "v");
	CHECK(dbm_delete(db, text("k")) == 0 && dbm_fetch(db, text("k")).dptr == NULL);
	CHECK(dbm_delete(db, text("k")) == -1 && !dbm_error(db));
	CHECK(dbm_delete(db, text("never")) == -1 && !dbm_error(db));
	dbm_close(db);
}

static void fetch_missing(void)
{
	DBM *db = open_new();
	datum d = dbm_fetch(db, text("k"));

	CHECK(d.dptr == NULL && !dbm_error(db));
	dbm_close(db);
}

static void empty_value(void)
{
	DBM *db = open_new();
	datum d;

	CHECK(dbm_store(db, text("k"), bytes("", 0), DBM_INSERT) == 0);
	d = dbm_fetch(db, text("k"));
	CHECK(d.dptr != NULL && d.dsize == 0);
	dbm_close(db);
}

static void null_key_and_value(void)
{
	DBM *db = open_new();
	datum d, null = bytes(NULL, 0);

	CHECK(dbm_store(db, null, text("v"), DBM_INSERT) == 0);
	CHECK(is(dbm_fetch(db, null), "v"));
	CHECK(dbm_store(db, text("k"), null, DBM_INSERT) == 0);
	d = dbm_fetch(db, text("k"));
	CHECK(d.dptr != NULL && d.dsize == 0);
	CHECK(count(db) == 2);
	d = dbm_firstkey(db);
	CHECK(d.dptr != NULL && d.dsize == 0);
	CHECK(dbm_delete(db, null) == 0 && count(db) == 1);
	dbm_close(db);
}

extern char *kept_patterns[];
char *kept_patterns[16]; /* until the check ends */

static char *pattern(size_t n, unsigned seed)
{
	static int count_kept;
	char *p = malloc(n + 1);
	size_t i;

	kept_patterns[count_kept++ % 16] = p;
	CHECK(p != NULL);
	for (i = 0; i < n; i++) {
		seed = seed * 1103515245u + 12345u;
		p[i] = (char)(seed >> 16);
	}
	return p;
}

/* Stores and fetches a record of these sizes, and finds it by iteration. */
static void with_sizes(size_t key_size, size_t value_size)
{
	DBM *db = open_new();
	char *key = pattern(key_size, 1), *value = pattern(value_size, 2);
	datum d;

	CHECK(dbm_store(db, bytes(key, key_size), bytes(value, value_size), DBM_INSERT) == 0);
	CHECK(dbm_store(db, bytes(key, key_size), bytes("", 0), DBM_INSERT) == 1);
	d = dbm_fetch(db, bytes(key, key_size));
	CHECK(d.dptr != NULL && (size_t)d.dsize == value_size && memcmp(d.dptr, value, value_size) == 0);
	d = dbm_firstkey(db);
	CHECK(d.dptr != NULL && (size_t)d.dsize == key_size && memcmp(d.dptr, key, key_size) == 0);
	CHECK(dbm_nextkey(db).dptr == NULL);
	dbm_close(db);
	db = open_with(O_RDONLY);
	d = dbm_fetch(db, bytes(key, key_size));
	CHECK(d.dptr != NULL && (size_t)d.dsize == value_size && memcmp(d.dptr, value, value_size) == 0);
	dbm_close(db);
	db = open_with(O_RDWR);
	CHECK(dbm_delete(db, bytes(key, key_size)) == 0 && dbm_firstkey(db).dptr == NULL);
	dbm_close(db);
}

static void value_1k(void) { with_sizes(10, 1024); }
static void value_3k(void) { with_sizes(10, 3000); }
static void value_64k(void) { with_sizes(10, 65536); }
static void value_5m(void) { with_sizes(10, 5 << 20); }
static void key_1k(void) { with_sizes(1024, 10); }
static void key_64k(void)
{
	with_sizes(65535, 10);
	with_sizes(65536, 10);
	with_sizes(65537, 10);
}
static void key_1m(void) { with_sizes(1 << 20, 3000); }

/* Larger than an int can say. These take minutes, 8 GB of disk and as much memory: only with FLASHDBM_TEST_HUGE. */
static void huge(size_t key_size, size_t value_size)
{
	if (getenv("FLASHDBM_TEST_HUGE") == NULL)
		skip_check("FLASHDBM_TEST_HUGE is not set");
	with_sizes(key_size, value_size);
}

static void value_2g(void) { huge(10, (size_t)1 << 31); }
static void value_3g(void) { huge(10, (size_t)3 << 30); }
static void key_2g(void) { huge((size_t)1 << 31, 10); }

/* Too large: refused before anything is read. */
static void too_large(void)
{
	size_t size = ((size_t)1 << 32) + 1;
	char *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	DBM *db = open_new();

	if (p == MAP_FAILED)
		skip_check("no address space");
	put(db, "k", "v");
	errno = 0;
	CHECK(dbm_store(db, text("k"), bytes(p, size), DBM_REPLACE) == -1 && errno == EOVERFLOW);
	errno = 0;
	CHECK(dbm_store(db, bytes(p, size), text("v"), DBM_REPLACE) == -1 && errno == EOVERFLOW);
	errno = 0;
	CHECK(dbm_store(db, text("k"), bytes(p, (size_t)-1), DBM_REPLACE) == -1 && errno == EINVAL);
	CHECK(!dbm_error(db) && is(dbm_fetch(db, text("k")), "v") && count(db) == 1);
	dbm_close(db);
}

static void long_keys_are_told_apart(void)
{
	DBM *db = open_new();
	char *key = pattern(100000, 1);
	int i;
	datum d;

	for (i = 0; i < 10; i++) {
		key[99999] = (char)i;
		CHECK(dbm_store(db, bytes(key, 100000), bytes(&i, sizeof i), DBM_INSERT) == 0);
	}
	CHECK(count(db) == 10);
	for (i = 0; i < 10; i++) {
		key[99999] = (char)i;
		d = dbm_fetch(db, bytes(key, 100000));
		CHECK(d.dptr != NULL && (size_t)d.dsize == sizeof i && memcmp(d.dptr, &i, sizeof i) == 0);
	}
	dbm_close(db);
}

static void any_bytes(void)
{
	DBM *db = open_new();
	char key[2] = {0, 0}, value[2];
	int i;
	datum d;

	for (i = 0; i < 256; i++) {
		key[0] = value[1] = (char)i;
		value[0] = 0;
		CHECK(dbm_store(db, bytes(key, 2), bytes(value, 2), DBM_INSERT) == 0);
	}
	for (i = 0; i < 256; i++) {
		key[0] = (char)i;
		d = dbm_fetch(db, bytes(key, 2));
		CHECK(d.dptr != NULL && d.dsize == 2 && d.dptr[0] == 0 && d.dptr[1] == (char)i);
	}
	CHECK(dbm_fetch(db, bytes("\001", 1)).dptr == NULL && count(db) == 256);
	dbm_close(db);
}

static void clearerr_returns(void)
{
	DBM *db = open_new();
#ifdef LIBRARY_GDBM
	int ret = (dbm_clearerr(db), -1); /* is void there */
#else
	int ret = dbm_clearerr(db);
#endif

	CHECK(ret == 0 || ret == 1);
	CHECK(dbm_error(db) == 0);
	dbm_close(db);
}

/* A limit on the size of files makes writing fail. */
static void io_error(void)
{
	struct rlimit limit = {1 << 20, 1 << 20};
	DBM *db = open_new();
	char value[3000] = "";
	int i;

	put(db, "k", "v");
	signal(SIGXFSZ, SIG_IGN);
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	for (i = 0; i < 5000; i++)
		if (dbm_store(db, bytes(&i, sizeof i), bytes(value, sizeof value), DBM_INSERT) != 0)
			break;
	CHECK(i < 5000);
	CHECK(dbm_error(db) != 0);
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	CHECK(dbm_error(db) != 0);
	dbm_clearerr(db);
	CHECK(dbm_error(db) == 0);
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
	db = open_with(O_RDONLY);
	CHECK(is(dbm_fetch(db, text("k")), "v") && count(db) >= i);
	dbm_close(db);
}

static void memory_of_keys_and_values(void)
{
	DBM *db = open_new();
	datum k, v;
	int i;

	for (i = 0; i < 10; i++)
		put_number(db, i);
	k = dbm_firstkey(db);
	CHECK(k.dptr != NULL);
	k = bytes(k.dptr, (size_t)k.dsize);
	{
		char copy[64];
		size_t n = (size_t)k.dsize;

		CHECK(n < sizeof copy);
		memcpy(copy, k.dptr, n);
		v = dbm_fetch(db, k);
		CHECK(v.dptr != NULL && v.dsize >= 21);
		CHECK(memcmp(k.dptr, copy, n) == 0);
		CHECK(dbm_nextkey(db).dptr != NULL);
		CHECK(memcmp(v.dptr, "the value of record ", 20) == 0);
		put(db, "new", "new");
		CHECK(memcmp(v.dptr, "the value of record ", 20) == 0);
	}
	dbm_close(db);
}

static void memory_of_two_handles(void)
{
	DBM *a, *b;
	datum va, vb;

	a = dbm_open("a", O_RDWR | O_CREAT, 0666);
	b = dbm_open("b", O_RDWR | O_CREAT, 0666);
	CHECK(a != NULL && b != NULL);
	put(a, "k", "of a");
	put(b, "k", "of b");
	va = dbm_fetch(a, text("k"));
	vb = dbm_fetch(b, text("k"));
	CHECK(is(va, "of a") && is(vb, "of b"));
	va = dbm_firstkey(a);
	vb = dbm_firstkey(b);
	CHECK(va.dptr != vb.dptr && is(va, "k") && is(vb, "k"));
	dbm_close(a);
	dbm_close(b);
}

static void results_as_arguments(void)
{
	DBM *db = open_new();
	char *large = pattern(100000, 3);
	datum d;

	put(db, "one", "two");
	put(db, "two", "three");
	CHECK(dbm_store(db, text("three"), bytes(large, 100000), DBM_INSERT) == 0);
	d = dbm_fetch(db, dbm_fetch(db, dbm_fetch(db, text("one"))));
	CHECK(d.dptr != NULL && d.dsize == 100000 && memcmp(d.dptr, large, 100000) == 0);
	CHECK(dbm_store(db, text("copy"), d, DBM_INSERT) == 0);
	CHECK(dbm_store(db, dbm_firstkey(db), dbm_fetch(db, text("one")), DBM_REPLACE) == 0);
	d = dbm_fetch(db, text("copy"));
	CHECK(d.dptr != NULL && (is(d, "two") || memcmp(d.dptr, large, 100000) == 0));
	CHECK(dbm_delete(db, dbm_firstkey(db)) == 0 && count(db) == 3);
	dbm_close(db);
}

#define MANY 3000

static void iterates_once(void)
{
	DBM *db = open_new();
	static char seen[MANY];
	char key[32];
	datum k;
	int i, n = 0;

	for (i = 0; i < MANY; i++)
		put_number(db, i);
	for (k = dbm_firstkey(db); k.dptr != NULL; k = dbm_nextkey(db)) {
		CHECK((size_t)k.dsize < sizeof key);
		memcpy(key, k.dptr, (size_t)k.dsize);
		key[k.dsize] = '\0';
		CHECK(sscanf(key, "key%d", &i) == 1 && i >= 0 && i < MANY && !seen[i]);
		seen[i] = 1;
		CHECK(++n <= MANY);
		CHECK(has_number(db, i));
	}
	CHECK(n == MANY && !dbm_error(db));
	dbm_close(db);
}

static void deletes_while_iterating(void)
{
	DBM *db = open_new();
	datum k;
	int i, n = 0;

	for (i = 0; i < MANY; i++)
		put_number(db, i);
	for (k = dbm_firstkey(db); k.dptr != NULL; k = dbm_nextkey(db)) {
		CHECK(dbm_delete(db, k) == 0);
		CHECK(++n <= MANY);
	}
	CHECK(n == MANY && dbm_firstkey(db).dptr == NULL);
	dbm_close(db);
}

static void replaces_while_iterating(void)
{
	DBM *db = open_new();
	datum k;
	int i, n = 0;

	for (i = 0; i < MANY; i++)
		put_number(db, i);
	for (k = dbm_firstkey(db); k.dptr != NULL; k = dbm_nextkey(db)) {
		CHECK(dbm_store(db, k, text("a longer value than that one was before"), DBM_REPLACE) == 0);
		CHECK(++n <= MANY);
	}
	CHECK(n == MANY);
	dbm_close(db);
}

static void program_writes_to_key(void)
{
	DBM *db = open_new();
	datum k;
	int i, n = 0;

	for (i = 0; i < 100; i++)
		put_number(db, i);
	for (k = dbm_firstkey(db); k.dptr != NULL; k = dbm_nextkey(db)) {
		memset((char *)k.dptr, 'z', (size_t)k.dsize);
		CHECK(++n <= 100);
	}
	CHECK(n == 100);
	dbm_close(db);
}

static void stays_at_end(void)
{
	DBM *db = open_new();
	int i;

	for (i = 0; i < 5; i++)
		put_number(db, i);
	CHECK(count(db) == 5);
	for (i = 0; i < 5; i++)
		CHECK(dbm_nextkey(db).dptr == NULL);
	put(db, "zzz", "v");
	CHECK(dbm_nextkey(db).dptr == NULL);
	CHECK(dbm_firstkey(db).dptr != NULL && dbm_nextkey(db).dptr != NULL);
	CHECK(count(db) == 6);
	dbm_close(db);
}

static void two_iterations(void)
{
	DBM *a = open_new(), *b;
	datum k;
	int i, n = 0;

	for (i = 0; i < 100; i++)
		put_number(a, i);
	b = open_with(O_RDWR);
	for (k = dbm_firstkey(a); k.dptr != NULL; k = dbm_nextkey(a)) {
		CHECK(++n <= 100);
		if (n % 10 == 0)
			CHECK(count(b) == 100);
	}
	CHECK(n == 100);
	dbm_close(a);
	dbm_close(b);
}

static void modification_time(void)
{
	DBM *db = open_new();
	struct stat before, after;
	int i;

	for (i = 0; i < 5; i++) {
		CHECK(fstat(dbm_pagfno(db), &before) == 0);
		usleep(20000);
		put_number(db, i);
		CHECK(fstat(dbm_pagfno(db), &after) == 0);
		CHECK(before.st_mtim.tv_sec != after.st_mtim.tv_sec || before.st_mtim.tv_nsec != after.st_mtim.tv_nsec);
	}
	dbm_close(db);
}

static void many_reopened(void)
{
	DBM *db;
	int i;

	for (i = 0; i < 40; i++) {
		db = open_with(O_RDWR | O_CREAT);
		put_number(db, i);
		CHECK(count(db) == i + 1);
		dbm_close(db);
	}
}

const struct check record_checks[] = {
	{"store: insert and replace", store_and_fetch},
	{"store: 1 for DBM_INSERT on an existing key, no error", insert_existing},
	{"store: -1 and EPERM on a read-only handle, not sticky", read_only_handle},
	{"delete: 0, or -1 if missing", delete_record},
	{"fetch: NULL if missing", fetch_missing},
	{"fetch: an empty value is not NULL", empty_value},
	{"store: NULL of size 0 as key and as value", null_key_and_value},
	{"size: value of 1 KB", value_1k},
	{"size: value of 3,000 bytes", value_3k},
	{"size: value of 64 KiB", value_64k},
	{"size: value of 5 MiB", value_5m},
	{"size: key of 1 KB", key_1k},
	{"size: keys of 64 KiB and a byte less and more", key_64k},
	{"size: key of 1 MiB", key_1m},
	{"size: value of 2 GiB", value_2g},
	{"size: value of 3 GiB", value_3g},
	{"size: key of 2 GiB", key_2g},
	{"size: more than 4 GiB", too_large},
	{"size: long keys with a common head", long_keys_are_told_apart},
	{"store: any bytes", any_bytes},
	{"error: dbm_clearerr returns int", clearerr_returns},
	{"error: set by a failed write, sticky until cleared", io_error},
	{"memory: keys and values apart", memory_of_keys_and_values},
	{"memory: of each handle", memory_of_two_handles},
	{"memory: results as arguments", results_as_arguments},
	{"iteration: every key once, fetching meanwhile", iterates_once},
	{"iteration: deleting each key loses none", deletes_while_iterating},
	{"iteration: replacing each value ends", replaces_while_iterating},
	{"iteration: the program writes to the key it was given", program_writes_to_key},
	{"iteration: stays at the end", stays_at_end},
	{"iteration: two handles", two_iterations},
	{"store: moves the modification time of .pag", modification_time},
	{"open: forty times", many_reopened},
};
END_TABLE(record_checks);
