#define _GNU_SOURCE
#include "tap.h"

#include <errno.h>
#include <ftw.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 300 /* of a check that hangs; FLASHDBM_TEST_SECONDS says otherwise */

static unsigned seconds(void)
{
	const char *text = getenv("FLASHDBM_TEST_SECONDS");

	return text == NULL ? SECONDS : (unsigned)atoi(text);
}

void fail_check(const char *file, int line, const char *what)
{
	const char *base = strrchr(file, '/');

	printf("# %s:%d: %s (errno %d: %s)\n", base == NULL ? file : base + 1, line, what, errno, strerror(errno));
	fflush(stdout);
	_exit(1);
}

void skip_check(const char *why)
{
	printf("# skipped: %s\n", why);
	fflush(stdout);
	_exit(SKIP);
}

int start_child(void (*fn)(void *), void *arg)
{
	int pid;

	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		fn(arg);
		fflush(stdout);
		_exit(0);
	}
	return pid;
}

void wait_for(int child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		CHECK(errno == EINTR);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIP)
		_exit(SKIP);
	CHECK(WIFEXITED(status));
	CHECK(WEXITSTATUS(status) == 0);
}

void in_child(void (*fn)(void *), void *arg)
{
	wait_for(start_child(fn, arg));
}

int is_root(void)
{
	return geteuid() == 0;
}

void become_nobody(void)
{
	if (!is_root())
		return;
	CHECK(setgroups(0, NULL) == 0);
	CHECK(setgid(65534) == 0);
	CHECK(setuid(65534) == 0);
}

int scaled(int n)
{
	return getenv("FLASHDBM_TEST_LONG") != NULL ? n : n / 10;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)at;
	if (type == FTW_DNR)
		chmod(path, 0700);
	return remove(path);
}

/* Runs one check; 0, SKIP or not. */
static int run_check(const struct check *c)
{
	char dir[] = "check-XXXXXX";
	int pid, status;

	if (mkdtemp(dir) == NULL)
		return -1;
	chmod(dir, 0777);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		alarm(seconds());
		setenv("FLASHDBM_LOCK_TIMEOUT", PATIENCE, 0);
		if (chdir(dir) != 0)
			_exit(2);
		umask(022);
		c->run();
		fflush(stdout);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	kill(-pid, SIGKILL); /* what it has left running */
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (WIFSIGNALED(status)) {
		printf("# ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
		return -1;
	}
	return WEXITSTATUS(status);
}

static int wanted(const char *name, int argc, char **argv)
{
	int i;

	if (argc < 2)
		return 1;
	for (i = 1; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return 1;
	return 0;
}

int run_checks(int argc, char **argv, const struct check *checks, int n)
{
	int i, ret, number = 0, failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		for (i = 0; i < n; i++)
			puts(checks[i].name);
		return 0;
	}
	if (argc < 2)
		printf("1..%d\n", n);
	for (i = 0; i < n; i++) {
		if (!wanted(checks[i].name, argc, argv))
			continue;
		number++;
		ret = run_check(&checks[i]);
		if (ret == SKIP)
			printf("ok %d - %s # SKIP\n", number, checks[i].name);
		else
			printf("%sok %d - %s\n", ret == 0 ? "" : "not ", number, checks[i].name);
		failed += ret != 0 && ret != SKIP;
	}
	if (argc >= 2)
		printf("1..%d\n", number);
	if (failed > 0)
		printf("# %d of %d checks failed\n", failed, number);
	return failed > 0;
}
