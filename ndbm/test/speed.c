/*
 * Stores, then fetches records of 16 + 100 bytes in random order: speed NUMBER. Prints microseconds for each. The time of the store is
 * that until dbm_store has returned; that of dbm_close stands apart.
 */
#define _GNU_SOURCE
#include "library.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double on(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double now(void) { return on(CLOCK_MONOTONIC); }

/* What the calling thread alone has used of a processor: on a machine with other work the better measure. */
static double used(void) { return on(CLOCK_THREAD_CPUTIME_ID); }

/* Record i of a random order: a key of 16 bytes in which i is mixed without collisions. */
static void make_key(char *key, uint64_t i)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t x = i * 0x9e3779b97f4a7c15u;
	int n;

	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93u;
	for (n = 0; n < 16; n++)
		key[n] = digits[x >> 4 * n & 15];
}

static DBM *open_or_die(int flags)
{
	DBM *db = dbm_open("speed", flags, 0644);

	if (db == NULL) {
		perror("dbm_open");
		exit(1);
	}
	return db;
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 1000000, i, found = 0;
	char key[16], value[100];
	datum k, v;
	DBM *db = open_or_die(O_RDWR | O_CREAT | O_TRUNC);
	double t0, t1, t2, t3, t4, u0, u1, u3, u4;

	memset(value, 'v', sizeof value);
	k.dptr = key;
	k.dsize = sizeof key;
	v.dptr = value;
	v.dsize = sizeof value;
	t0 = now();
	u0 = used();
	for (i = 0; i < n; i++) {
		make_key(key, (uint64_t)i);
		memcpy(value, key, sizeof key);
		if (dbm_store(db, k, v, DBM_REPLACE) != 0) {
			perror("dbm_store");
			return 1;
		}
	}
	t1 = now();
	u1 = used();
	dbm_close(db);
	t2 = now();
	db = open_or_die(O_RDONLY);
	t3 = now();
	u3 = used();
	for (i = 0; i < n; i++) {
		datum d;

		make_key(key, (uint64_t)(i * 7919 % n));
		d = dbm_fetch(db, k);
		found += d.dptr != NULL && d.dsize == sizeof value && memcmp(d.dptr, key, sizeof key) == 0;
	}
	t4 = now();
	u4 = used();
	dbm_close(db);
	if (found != n) {
		fprintf(stderr, "%ld of %ld found\n", found, n);
		return 1;
	}
	printf("store %.2f us (of which the thread %.2f)  close %.0f ms  fetch %.2f us (%.2f)\n", (t1 - t0) / (double)n, (u1 - u0) / (double)n,
		(t2 - t1) / 1e3, (t4 - t3) / (double)n, (u4 - u3) / (double)n);
	return 0;
}
