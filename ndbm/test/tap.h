/*
 * A test program is a table of checks. Each runs in a process of its own, in an empty directory, for five minutes at most, and fails if
 * it crashes or hangs; so one library's crash leaves the others' checks alone. Output is TAP. Arguments name the checks to run; --list lists.
 */
#ifndef TAP_H
#define TAP_H

#define SKIP 77

/* Seconds, as FLASHDBM_LOCK_TIMEOUT, that the checks wait for another process: longer than any busy machine or slow disk takes. */
#define PATIENCE "60"

struct check {
	const char *name;
	void (*run)(void);
};

int run_checks(int argc, char **argv, const struct check *checks, int n);

/* Ends the check. */
void fail_check(const char *file, int line, const char *what) __attribute__((noreturn));
void skip_check(const char *why) __attribute__((noreturn));

#define CHECK(condition) ((condition) ? (void)0 : fail_check(__FILE__, __LINE__, #condition))

/* Runs fn in a child; CHECKs that it ends well. */
void in_child(void (*fn)(void *), void *arg);

/* The same in two steps. */
int start_child(void (*fn)(void *), void *arg);
void wait_for(int child);

/* Whether the test may do what only root may. become_nobody makes it an ordinary user for good. */
int is_root(void);
void become_nobody(void);

/* Makes FLASHDBM_TEST_LONG work in full: n, or a tenth of it. */
int scaled(int n);

#endif
