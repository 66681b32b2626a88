/* The conformance program of dbm.h, the interface with one open database. */
#define _GNU_SOURCE
#include "tap.h"

#if defined(LIBRARY_BERKELEY)
#define DB_DBM_HSEARCH 1
#include <db.h>
#elif defined(LIBRARY_GDBM)
#include <dbm.h>
#else
#include <dbm.h>
#include <ndbm.h> /* both may be used together */
#endif

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "db"

static datum bytes(const void *p, size_t n)
{
	datum d;

	d.dptr = (char *)p;
	d.dsize = n;
	return d;
}

static datum text(const char *s) { return bytes(s, strlen(s)); }

static int is(datum d, const char *s)
{
	return d.dptr != NULL && (size_t)d.dsize == strlen(s) && memcmp(d.dptr, s, strlen(s)) == 0;
}

static void make_files(void)
{
	CHECK(system(">" NAME ".pag; >" NAME ".dir") == 0);
}

static void must_exist(void)
{
	CHECK(dbminit(NAME) < 0);
	CHECK(access(NAME ".pag", F_OK) != 0);
}

static void records(void)
{
	make_files();
	CHECK(dbminit(NAME) == 0);
	CHECK(fetch(text("k")).dptr == NULL);
	CHECK(store(text("k"), text("v")) == 0 && is(fetch(text("k")), "v"));
	CHECK(store(text("k"), text("w")) == 0 && is(fetch(text("k")), "w"));
	CHECK(delete(text("k")) == 0 && fetch(text("k")).dptr == NULL);
	CHECK(delete(text("k")) == -1);
	CHECK(store(text("stays"), text("v")) == 0);
	dbmclose();
	CHECK(dbminit(NAME) == 0 && is(fetch(text("stays")), "v"));
	dbmclose();
}

static void nothing_open(void)
{
	CHECK(fetch(text("k")).dptr == NULL);
	CHECK(store(text("k"), text("v")) < 0);
	CHECK(delete(text("k")) < 0);
	CHECK(firstkey().dptr == NULL);
	CHECK(nextkey(text("k")).dptr == NULL);
	dbmclose();
	make_files();
	CHECK(dbminit(NAME) == 0);
	dbmclose();
	CHECK(fetch(text("k")).dptr == NULL && store(text("k"), text("v")) < 0);
}

static void fill(int n)
{
	char key[32];
	int i;

	for (i = 0; i < n; i++) {
		snprintf(key, sizeof key, "key%d", i);
		CHECK(store(text(key), text("v")) == 0);
	}
}

static void iterates(void)
{
	datum k;
	int n = 0;

	make_files();
	CHECK(dbminit(NAME) == 0);
	CHECK(firstkey().dptr == NULL);
	fill(1000);
	for (k = firstkey(); k.dptr != NULL; k = nextkey(k))
		CHECK(++n <= 1000);
	CHECK(n == 1000);
	dbmclose();
}

/* Not the iteration's own idea of where it is, but the key it is given, says what comes next. */
static void nextkey_follows_argument(void)
{
	static char keys[100][16];
	datum k;
	int n = 0, i;

	make_files();
	CHECK(dbminit(NAME) == 0);
	fill(100);
	for (k = firstkey(); k.dptr != NULL; k = nextkey(k)) {
		CHECK(n < 100 && (size_t)k.dsize < sizeof keys[0]);
		memcpy(keys[n++], k.dptr, (size_t)k.dsize);
	}
	CHECK(n == 100);
	for (i = 98; i >= 0; i -= 7)
		CHECK(is(nextkey(text(keys[i])), keys[i + 1]));
	CHECK(nextkey(text(keys[99])).dptr == NULL);
	CHECK(is(nextkey(text(keys[10])), keys[11]));
	dbmclose();
}

static void deletes_while_iterating(void)
{
	datum k, next;
	int n = 0;

	make_files();
	CHECK(dbminit(NAME) == 0);
	fill(500);
	for (k = firstkey(); k.dptr != NULL; k = next) {
		char copy[32];
		size_t size = (size_t)k.dsize;

		memcpy(copy, k.dptr, size);
		next = nextkey(k);
		CHECK(delete(bytes(copy, size)) == 0);
		CHECK(++n <= 500);
	}
	CHECK(n == 500 && firstkey().dptr == NULL);
	dbmclose();
}

static void read_only_files(void)
{
	make_files();
	CHECK(dbminit(NAME) == 0 && store(text("k"), text("v")) == 0);
	dbmclose();
	CHECK(chmod(NAME ".pag", 0444) == 0 && chmod(NAME ".dir", 0444) == 0 && chmod(".", 0555) == 0);
	become_nobody();
	CHECK(dbminit(NAME) == 0);
	CHECK(is(fetch(text("k")), "v"));
	CHECK(store(text("k"), text("w")) < 0 && is(fetch(text("k")), "v"));
	dbmclose();
}

static void opened_twice(void)
{
	CHECK(system(">a.pag; >a.dir; >b.pag; >b.dir") == 0);
	CHECK(dbminit("a") == 0 && store(text("k"), text("of a")) == 0);
	CHECK(dbminit("b") == 0 && fetch(text("k")).dptr == NULL);
	CHECK(store(text("k"), text("of b")) == 0);
	CHECK(dbminit("a") == 0 && is(fetch(text("k")), "of a"));
	dbmclose();
}

static void child_stores(void *arg)
{
	CHECK(store(text("child"), text("v")) == 0);
	dbmclose();
}

static void fork_after_open(void)
{
	make_files();
	CHECK(dbminit(NAME) == 0 && store(text("k"), text("v")) == 0);
	in_child(child_stores, NULL);
	CHECK(is(fetch(text("child")), "v"));
	dbmclose();
}

#if !defined(LIBRARY_BERKELEY) && !defined(LIBRARY_GDBM)
static void both_interfaces(void)
{
	DBM *db;

	make_files();
	CHECK(dbminit(NAME) == 0 && store(text("k"), text("v")) == 0);
	db = dbm_open(NAME, O_RDWR, 0);
	CHECK(db != NULL && is(dbm_fetch(db, text("k")), "v"));
	CHECK(dbm_store(db, text("k2"), text("v2"), DBM_INSERT) == 0 && is(fetch(text("k2")), "v2"));
	dbmclose();
	dbm_close(db);
}
#endif

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"dbminit: the files must exist", must_exist},
		{"records: store, fetch, delete", records},
		{"nothing open: calls fail and do not crash", nothing_open},
		{"iteration: every key once", iterates},
		{"iteration: nextkey follows its argument", nextkey_follows_argument},
		{"iteration: deleting each key", deletes_while_iterating},
		{"dbminit: files that cannot be written", read_only_files},
		{"dbminit: another database", opened_twice},
		{"fork: the child stores", fork_after_open},
#if !defined(LIBRARY_BERKELEY) && !defined(LIBRARY_GDBM)
		{"both interfaces at once", both_interfaces},
#endif
	};

	return run_checks(argc, argv, checks, sizeof checks / sizeof checks[0]);
}
