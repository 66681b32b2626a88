/* Fetches from a database that nobody writes, or somebody now and then: they take another way, by themselves, as far as they can. */
#define _GNU_SOURCE
#include "records.h"

#include "checks.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Keys that are hard to tell apart: with long common heads, of which one is the beginning of another, with zeros at the end, longer than what
 * inner pages or leaves keep of them. Key n is stored if n is not a multiple of 3.
 */
#define SHAPES 8
#define LONGEST 1200

static size_t make_key(char *key, int shape, int i)
{
	int n;

	switch (shape) {
	case 0: /* numbers as text */
		return (size_t)sprintf(key, "%d", i);
	case 1: /* little endian */
		memcpy(key, &i, sizeof i);
		return sizeof i;
	case 2: /* the difference comes late */
		memset(key, 'a', 60);
		return 60 + (size_t)sprintf(key + 60, "%05d", i);
	case 3: /* each the beginning of the next */
		memset(key, 'b', LONGEST);
		return (size_t)i % LONGEST;
	case 4: /* zeros at the end */
		n = sprintf(key, "z%d", i / 8);
		memset(key + n, 0, 8);
		return (size_t)n + (size_t)i % 8;
	case 5: /* longer than a separator */
		memset(key, 'c', 600);
		return 600 + (size_t)sprintf(key + 600, "%06d", i);
	case 6: /* longer than what a leaf keeps */
		memset(key, 'd', 1010);
		return 1010 + (size_t)sprintf(key + 1010, "%06d", i);
	default: /* bytes from 128 on */
		for (n = 0; n < 6; n++)
			key[n] = (char)(i * 2654435761u >> 3 * n);
		memcpy(key + 6, &i, sizeof i);
		return 6 + sizeof i;
	}
}

static size_t make_value(char *value, int shape, int i)
{
	size_t size = (size_t)(i % 101 == 0 ? 3000 : i % 7 * 40);

	memset(value, 'A' + (i + shape) % 26, size);
	return size;
}

static int keys_of(int shape) { return shape == 3 ? LONGEST : scaled(10000); }

static void store_shapes(DBM *db)
{
	char key[LONGEST + 20], value[3000];
	int shape, i;

	for (shape = 0; shape < SHAPES; shape++)
		for (i = 0; i < keys_of(shape); i++)
			if (i % 3 != 0) {
				size_t k = make_key(key, shape, i), v = make_value(value, shape, i);

				CHECK(dbm_store(db, bytes(key, k), bytes(value, v), DBM_REPLACE) == 0);
			}
}

static void fetch_shapes(DBM *db)
{
	char key[LONGEST + 20], value[3000];
	int shape, i;

	for (shape = 0; shape < SHAPES; shape++)
		for (i = 0; i < keys_of(shape); i++) {
			size_t k = make_key(key, shape, i), v = make_value(value, shape, i);
			datum d = dbm_fetch(db, bytes(key, k));

			if (i % 3 == 0)
				CHECK(d.dptr == NULL && !dbm_error(db));
			else
				CHECK(d.dptr != NULL && (size_t)d.dsize == v && memcmp(d.dptr, value, v) == 0);
		}
}

static void many_shapes(void)
{
	DBM *db = open_new();
	int round;

	store_shapes(db);
	fetch_shapes(db);
	dbm_close(db);
	db = open_with(O_RDONLY);
	for (round = 0; round < 3; round++) /* pages that were not looked at before, and those that were */
		fetch_shapes(db);
	dbm_close(db);
}

#define NUMBERS 3000

/* A new database with as many numbers, opened again with these flags. */
static DBM *open_filled(int flags)
{
	DBM *db = open_new();
	int i;

	for (i = 0; i < NUMBERS; i++)
		put_number(db, i);
	dbm_close(db);
	return open_with(flags);
}

static int has_all(DBM *db)
{
	int i;

	for (i = 0; i < NUMBERS && has_number(db, i); i++)
		;
	return i == NUMBERS;
}

/* A store that has returned is what every fetch finds that begins after it. */
struct reading {
	DBM *db;
	volatile int stop, newest;
	volatile long fetched;
};

static int number_in(datum d)
{
	char copy[32] = "";

	if (d.dptr == NULL || d.dsize >= sizeof copy)
		return -1;
	memcpy(copy, d.dptr, d.dsize);
	return atoi(copy);
}

static void *reads(void *arg)
{
	struct reading *r = arg;

	while (!r->stop) {
		int before = r->newest, n = number_in(dbm_fetch(r->db, text("number")));

		CHECK(n >= before);
		before = r->newest;
		CHECK(number_in(dbm_fetch(r->db, dbm_fetch(r->db, text("its key")))) >= before);
		CHECK(has_number(r->db, n % NUMBERS));
		r->fetched++;
	}
	dbm_close(r->db);
	return NULL;
}

static void read_while_written(void)
{
	struct reading readers[2];
	pthread_t threads[2];
	char value[32];
	DBM *db = open_filled(O_RDWR);
	int t, ask[2], answer[2], status, round, rounds = scaled(100);
	long fetched[2];
	char c = 0;
	pid_t pid;

	put(db, "number", "0");
	put(db, "its key", "number");
	dbm_close(db);
	CHECK(pipe(ask) == 0 && pipe(answer) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) { /* stores the next number each time it is asked to, and lets go of the database */
		close(ask[1]);
		for (round = 1; read(ask[0], &c, 1) == 1; round++) {
			db = open_with(O_RDWR);
			snprintf(value, sizeof value, "%d", round);
			put(db, "number", value);
			if (round % 3 == 0)
				put_number(db, round % NUMBERS);
			CHECK(write(answer[1], &c, 1) == 1);
			dbm_close(db);
		}
		_exit(0);
	}
	for (t = 0; t < 2; t++) {
		memset(&readers[t], 0, sizeof readers[t]);
		readers[t].db = open_with(O_RDONLY);
		CHECK(pthread_create(&threads[t], NULL, reads, &readers[t]) == 0);
	}
	for (round = 1; round <= rounds; round++) {
		CHECK(write(ask[1], &c, 1) == 1 && read(answer[0], &c, 1) == 1);
		for (t = 0; t < 2; t++) {
			fetched[t] = readers[t].fetched;
			readers[t].newest = round;
		}
		usleep(round % 2 ? 1000 : 60000); /* until they have the lock again, or not */
		for (t = 0; t < 2; t++)
			while (readers[t].fetched == fetched[t])
				usleep(1000);
	}
	for (t = 0; t < 2; t++) {
		readers[t].stop = 1;
		CHECK(pthread_join(threads[t], NULL) == 0 && readers[t].fetched >= rounds);
	}
	close(ask[1]);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* The same with a writing handle in the process of the reading one. */
static void read_beside_own_writer(void)
{
	DBM *reader = open_filled(O_RDONLY), *writer;
	int i;

	for (i = 0; i < 20; i++) {
		CHECK(has_number(reader, i));
		writer = open_with(O_RDWR);
		CHECK(has_number(reader, i));
		put(writer, "k", i % 2 ? "odd" : "even");
		CHECK(is(dbm_fetch(reader, text("k")), i % 2 ? "odd" : "even"));
		dbm_close(writer);
		CHECK(is(dbm_fetch(reader, text("k")), i % 2 ? "odd" : "even"));
	}
	dbm_close(reader);
}

static void child_reads(void *db)
{
	CHECK(has_all(db));
	dbm_close(db);
}

static void read_across_fork(void)
{
	DBM *db = open_filled(O_RDONLY);
	int i;

	CHECK(has_all(db));
	for (i = 0; i < 3; i++)
		in_child(child_reads, db);
	CHECK(has_all(db));
	dbm_close(db);
}

/* Somebody cuts the file short under a reader: an error, not the end of the program, and its own handler stays. */
static volatile int faults;

static void on_bus(int sig) { faults++; }

/* Whether record i is there, and nothing else in its place; or else an error has been reported. */
static int has_or_fails(DBM *db, int i)
{
	dbm_clearerr(db);
	errno = 0;
	if (has_number(db, i))
		return 1;
	CHECK(errno == EIO && dbm_error(db));
	return 0;
}

static void cut_short(void)
{
	struct sigaction sa;
	int i, lost = 0;
	DBM *db;

	memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_bus;
	CHECK(sigaction(SIGBUS, &sa, NULL) == 0); /* one installed later would be asked first */
	db = open_filled(O_RDONLY);
	CHECK(has_all(db));
	CHECK(truncate(NAME ".pag", 8192) == 0);
	for (i = 0; i < NUMBERS; i++)
		lost += !has_or_fails(db, i);
	CHECK(lost > 0 && faults == 0);
	CHECK(kill(getpid(), SIGBUS) == 0 && faults == 1);
	dbm_close(db);
}

/* Under one that writes: it may fail, but not end. */
static void cut_short_writing(void)
{
	DBM *db = open_filled(O_RDWR);
	int i;

	CHECK(has_number(db, 1));
	CHECK(truncate(NAME ".pag", 8192) == 0);
	for (i = 0; i < NUMBERS; i++) {
		(void)has_or_fails(db, i);
		(void)dbm_store(db, text("another"), text("v"), DBM_REPLACE);
		(void)dbm_delete(db, text("another"));
		(void)dbm_firstkey(db);
		(void)dbm_nextkey(db);
	}
	dbm_close(db);
}

const struct check fetch_checks[] = {
	{"fetch: keys of many shapes, there and not there", many_shapes},
	{"fetch: while another process writes now and then", read_while_written},
	{"fetch: beside a writing handle that comes and goes", read_beside_own_writer},
	{"fetch: before a fork, in the child and after it", read_across_fork},
	{"error: a file cut short under a reader", cut_short},
	{"error: a file cut short under a writer", cut_short_writing},
};
END_TABLE(fetch_checks);
