/* See turn.h. */
#define _GNU_SOURCE
#include "turn.h"
#include "engine.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOCK_TIMEOUT 10.0 /* seconds */
#define LOOK_EVERY 1000000L /* nanoseconds */

/* Where a thread has them without a call; there is little such room for libraries that are loaded late. */
#define AT_HAND __attribute__((tls_model("initial-exec")))

static __thread int inside AT_HAND; /* a call */
static __thread int known AT_HAND;  /* the engine has prepared itself for this thread */
static __thread sigset_t before;

/* The first call of a thread. */
static int introduce(void)
{
	const struct engine *e = engine_get();

	if (e == NULL || turn_begin() != 0)
		return -1;
	e->bind();
	turn_end();
	known = 1;
	return 0;
}

int turn_enter(void)
{
	if (__builtin_expect(inside, 0)) {
		errno = EDEADLK;
		return -1;
	}
	if (__builtin_expect(!known, 0) && introduce() != 0)
		return -1;
	inside = 1;
	return 0;
}

void turn_leave(void)
{
	inside = 0;
}

int turn_begin(void)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
	sigset_t all;
	size_t i;

	if (__builtin_expect(inside, 0)) {
		errno = EDEADLK;
		return -1;
	}
	sigfillset(&all);
	for (i = 0; i < sizeof faults / sizeof faults[0]; i++) /* blocked, they end the program instead of being the engine's error */
		sigdelset(&all, faults[i]);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	inside = 1;
	return 0;
}

void turn_end(void)
{
	int saved = errno;

	inside = 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = saved;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* FLASHDBM_LOCK_TIMEOUT: seconds, or with a unit: 500ms, 2.5s, 1m. */
static double lock_timeout(void)
{
	const char *text = getenv("FLASHDBM_LOCK_TIMEOUT");
	char *unit;
	double n;

	if (text == NULL || *text == '\0')
		return LOCK_TIMEOUT;
	n = strtod(text, &unit);
	if (unit == text || !(n >= 0))
		return LOCK_TIMEOUT;
	if (strcmp(unit, "ms") == 0)
		return n / 1000;
	if (strcmp(unit, "m") == 0)
		return n * 60;
	return n;
}

int turn_again(int ret, int handle, double *started)
{
	const struct timespec pause = {0, LOOK_EVERY};

	if (ret != -EBUSY)
		return 0;
	if (*started == 0)
		*started = now();
	if (now() - *started >= lock_timeout()) {
		const struct engine *e = engine_get();

		if (e != NULL)
			e->cancel(handle);
		return 0;
	}
	nanosleep(&pause, NULL);
	return 1;
}

int turn_durable(void)
{
	const char *text = getenv("FLASHDBM_DURABILITY");

	return text != NULL && strcmp(text, "durable") == 0;
}

void turn_forget(void)
{
	inside = 0;
	known = 0;
}
