/*
 * Readers of a still tree beside an engine that shows and hides it, each time with another mapping: none may read what is gone, or changed. With
 * the thread and the address sanitizer: still_gate SECONDS, and more where a busy machine has not let each reader come in by then.
 */
#define _GNU_SOURCE
#include "../front/still.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROOT (((uint64_t)3 << 62) + 1)
#define VALUE 100
#define PATIENCE 60 /* seconds for a reader to come in */

static struct still still;
static uint64_t checked = 2, overridden; /* page 1, as address 0 is none */
static struct still_moved moved[8];
static int stop;

/* A leaf with one record, whose value is of one letter. */
static unsigned char *make_page(char letter)
{
	static const unsigned char node[] = {0, 0, 1, 0, 0, 0, 1 + VALUE, 0, 0, 0, 0, 'k', 58, 0, 1, 0, VALUE, 0, 'k'};
	unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t root = ROOT;

	if (page == MAP_FAILED)
		abort();
	page[4] = 1;
	memcpy(page + 8, &root, sizeof root);
	memcpy(page + 40, node, sizeof node);
	memset(page + 59, letter, VALUE);
	return page;
}

static void show(unsigned char *page)
{
	still.root = ROOT;
	still.moved = moved;
	still.places = 8;
	still.shift = 1;
	still.chunks = 1;
	still.chunk[0].pages = page - 4096;
	still.chunk[0].checked = &checked;
	still.chunk[0].overridden = &overridden;
	__atomic_fetch_and(&still.entered, ~STILL_HIDDEN, __ATOMIC_SEQ_CST);
}

static void hide(void)
{
	uint64_t left;

	__atomic_fetch_or(&still.entered, STILL_HIDDEN, __ATOMIC_SEQ_CST);
	do
		left = __atomic_load_n(&still.left, __ATOMIC_SEQ_CST);
	while (left != (__atomic_load_n(&still.entered, __ATOMIC_SEQ_CST) & ~STILL_HIDDEN));
}

static void *reads(void *arg)
{
	long *fetched = arg;
	char reply[VALUE];
	size_t size;
	int i;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		if (still_fetch(&still, "k", 1, reply, sizeof reply, &size) != 1)
			continue;
		for (i = 1; i < VALUE; i++)
			if (size != VALUE || reply[i] != reply[0]) {
				fprintf(stderr, "half of two values\n");
				exit(1);
			}
		if (still_fetch(&still, "j", 1, reply, sizeof reply, &size) == 1) {
			fprintf(stderr, "what is not there\n");
			exit(1);
		}
		reply[0] = 'k'; /* the key where the value goes: who has to ask elsewhere still needs it */
		if (still_fetch(&still, reply, 1, reply, sizeof reply, &size) != 1 && reply[0] != 'k') {
			fprintf(stderr, "no value, and no key any more\n");
			exit(1);
		}
		__atomic_fetch_add(fetched, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int all_came(const long *fetched)
{
	int t;

	for (t = 0; t < 3; t++)
		if (__atomic_load_n(&fetched[t], __ATOMIC_RELAXED) == 0)
			return 0;
	return 1;
}

int main(int argc, char **argv)
{
	double begun = now(), took = 0, seconds = argc > 1 ? atoi(argv[1]) : 1;
	long fetched[3] = {0}, rounds;
	pthread_t threads[3];
	unsigned char *page;
	int t;

	for (t = 0; t < 8; t++) /* wherever its hash begins */
		moved[t] = (struct still_moved){ROOT, 1};
	still_forget(&still);
	still_guard();
	for (t = 0; t < 3; t++)
		if (pthread_create(&threads[t], NULL, reads, &fetched[t]) != 0)
			return 1;
	for (rounds = 0; took < seconds || (took < PATIENCE && !all_came(fetched)); rounds++, took = now() - begun) {
		page = make_page((char)('a' + rounds % 26));
		show(page);
		usleep((unsigned)(rounds % 50));
		hide();
		memset(page, 0, 4096);
		munmap(page, 4096);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (t = 0; t < 3; t++) {
		pthread_join(threads[t], NULL);
		if (fetched[t] == 0) {
			fprintf(stderr, "a reader did not come in within %d seconds\n", PATIENCE);
			return 1;
		}
	}
	printf("ok - a still tree, shown %ld times to %ld fetches\n", rounds, fetched[0] + fetched[1] + fetched[2]);
	return 0;
}
