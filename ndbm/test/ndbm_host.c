/* What the host program must not notice: signals, masks, limits, threads. */
#define _GNU_SOURCE
#include "records.h"

#include "checks.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t handled, elsewhere;
static int main_thread;

static int thread_id(void) { return (int)syscall(SYS_gettid); }

static void handler(int sig)
{
	char frame[8192]; /* a handler of some size */

	memset(frame, sig, sizeof frame);
	handled += frame[8191] == (char)sig;
	if (thread_id() != main_thread)
		elsewhere++;
}

static void handle(int sig, void (*fn)(int))
{
	struct sigaction sa = {.sa_handler = fn};

	main_thread = thread_id();
	CHECK(sigaction(sig, &sa, NULL) == 0);
}

static void tick(int which, int microseconds)
{
	struct itimerval t = {{0, microseconds}, {0, microseconds}};

	CHECK(setitimer(which, &t, NULL) == 0);
}

/* Works while a timer's signal comes again and again, with a handler that was there before the database was opened or not. */
static void works_under_timer(int sig, int which, int before)
{
	DBM *db;
	int i;

	if (before)
		handle(sig, handler);
	db = open_new();
	handle(sig, handler);
	tick(which, 300);
	for (i = 0; i < 3000 || (handled < 20 && i < 300000); i++) {
		put_number(db, i % 500);
		CHECK(has_number(db, i % 500));
		if (i % 100 == 0)
			CHECK(count(db) == (i < 500 ? i + 1 : 500));
	}
	tick(which, 0);
	CHECK(handled >= 20 && elsewhere == 0);
	CHECK(!dbm_error(db));
	dbm_close(db);
}

static void alarms_before(void) { works_under_timer(SIGALRM, ITIMER_REAL, 1); }
static void alarms_after(void) { works_under_timer(SIGALRM, ITIMER_REAL, 0); }
static void profiling(void) { works_under_timer(SIGPROF, ITIMER_PROF, 0); }

static void open_under_timer(void)
{
	DBM *db;
	int i;

	handle(SIGALRM, handler);
	tick(ITIMER_REAL, 500);
	for (i = 0; i < 30; i++) {
		db = open_with(O_RDWR | O_CREAT);
		put_number(db, i);
		dbm_close(db);
	}
	tick(ITIMER_REAL, 0);
	CHECK(elsewhere == 0);
	db = open_with(O_RDONLY);
	CHECK(count(db) == 30);
	dbm_close(db);
}

static void masks_stay(void)
{
	sigset_t set, before, after;
	DBM *db;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGSEGV);
	CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0);
	CHECK(sigprocmask(SIG_SETMASK, NULL, &before) == 0);
	db = open_new();
	put(db, "k", "v");
	CHECK(is(dbm_fetch(db, text("k")), "v") && count(db) == 1);
	CHECK(sigprocmask(SIG_SETMASK, NULL, &after) == 0);
	for (sig = 1; sig < 32; sig++)
		CHECK(sigismember(&before, sig) == sigismember(&after, sig));
	dbm_close(db);
}

static void handlers_stay(void)
{
	static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGCHLD, SIGTSTP, SIGWINCH, SIGIO, SIGURG, SIGPROF};
	struct sigaction sa;
	DBM *db;
	size_t i;

	for (i = 0; i < sizeof signals / sizeof signals[0]; i++)
		handle(signals[i], i % 2 ? handler : SIG_IGN);
	db = open_new();
	put(db, "k", "v");
	for (i = 0; i < sizeof signals / sizeof signals[0]; i++) {
		CHECK(sigaction(signals[i], NULL, &sa) == 0);
		CHECK(sa.sa_handler == (i % 2 ? handler : SIG_IGN));
	}
	CHECK(raise(SIGALRM) == 0 || 1);
	dbm_close(db);
}

/* Until the first open the library does nothing. */
static void nothing_before_open(void)
{
	char line[4096];
	int threads = 0, engine = 0, sig;
	struct sigaction sa;
	FILE *f;

	for (sig = 1; sig < 32; sig++)
		if (sig != SIGKILL && sig != SIGSTOP && sig != SIGALRM)
			CHECK(sigaction(sig, NULL, &sa) == 0 && (sa.sa_handler == SIG_DFL || sa.sa_handler == SIG_IGN));
	f = fopen("/proc/self/status", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f) != NULL)
		sscanf(line, "Threads: %d", &threads);
	fclose(f);
	CHECK(threads == 1);
	f = fopen("/proc/self/maps", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f) != NULL)
		engine |= strstr(line, "flashdbm-engine") != NULL;
	fclose(f);
	CHECK(!engine);
}

static void default_signals_end_it(void *arg)
{
	signal(*(int *)arg, SIG_DFL); /* whoever started this may have had it ignored, as nohup does */
	put(open_new(), "k", "v");
	kill(getpid(), *(int *)arg);
	sleep(atoi(PATIENCE));
}

static void default_actions(void)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGALRM, SIGPIPE, SIGSEGV, SIGBUS, SIGABRT};
	size_t i;
	int status, pid, sig;

	for (i = 0; i < sizeof signals / sizeof signals[0]; i++) {
		sig = signals[i];
		pid = start_child(default_signals_end_it, &sig);
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == sig);
	}
}

/* The classic wait for a child: blocked but while waiting. */
static void waits_for_child_by_signal(void)
{
	sigset_t block, before;
	DBM *db = open_new();
	int i, pid;

	put(db, "k", "v");
	handle(SIGCHLD, handler);
	sigemptyset(&block);
	sigaddset(&block, SIGCHLD);
	CHECK(sigprocmask(SIG_BLOCK, &block, &before) == 0);
	for (i = 0; i < 20; i++) {
		handled = 0;
		pid = fork();
		if (pid == 0)
			_exit(0);
		usleep(2000);
		CHECK(handled == 0);
		while (handled == 0)
			sigsuspend(&before);
		CHECK(waitpid(pid, NULL, 0) == pid);
	}
	CHECK(elsewhere == 0);
	put(db, "k", "v2");
	dbm_close(db);
}

static sigjmp_buf out;

static void jumps(int sig)
{
	siglongjmp(out, sig);
}

/* A handler that leaves a store by a jump: the store is over by then. */
static void jump_out_of_store(void)
{
	DBM *db = open_new();
	volatile int i, jumped = 0;

	handle(SIGALRM, jumps);
	for (i = 0; i < 50; i++) {
		put_number(db, i);
		if (sigsetjmp(out, 1) == 0) {
			struct itimerval t = {{0, 0}, {0, 1000}};

			CHECK(setitimer(ITIMER_REAL, &t, NULL) == 0);
			for (;;)
				put_number(db, i);
		} else {
			jumped++;
		}
	}
	CHECK(jumped == 50 && count(db) == 50);
	dbm_close(db);
}

/* A handler that leaves other calls by a jump: what the thread calls then may fail, but it ends. */
static datum unreadable(void) { return bytes(mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 5); }

static void jump_by_fault(DBM *db, datum (*call)(DBM *, datum))
{
	struct sigaction before;

	CHECK(sigaction(SIGSEGV, NULL, &before) == 0);
	handle(SIGSEGV, jumps);
	if (sigsetjmp(out, 1) == 0) {
		errno = 0;
		(void)call(db, unreadable());
		CHECK(errno == EDEADLK); /* after an earlier jump */
	}
	CHECK(sigaction(SIGSEGV, &before, NULL) == 0);
}

/* Some headers have macros of these names. */
static datum fetch_it(DBM *db, datum d) { return dbm_fetch(db, d); }

static void jump_out_of_fetch(void)
{
	DBM *db = open_new(), *other;
	int i;

	for (i = 0; i < 100; i++)
		put_number(db, i);
	dbm_close(db);
	db = open_with(O_RDONLY);
	for (i = 0; i < 100; i++)
		CHECK(has_number(db, i));
	for (i = 0; i < 3; i++) {
		jump_by_fault(db, fetch_it);
		CHECK(has_number(db, i) || errno == EDEADLK);
	}
	other = dbm_open("other", O_RDWR | O_CREAT, 0666);
	CHECK(other != NULL || errno == EDEADLK);
	dbm_close(db);
	if (other != NULL) {
		put_number(other, 1);
		dbm_close(other);
	}
}

/* The same while another process waits for the database. */
static void writes_one(void *arg)
{
	DBM *db = open_with(O_RDWR);

	put_number(db, 1000);
	dbm_close(db);
}

static void jump_out_of_fetch_beside_writer(void)
{
	DBM *db = open_new();
	int i;

	for (i = 0; i < 100; i++)
		put_number(db, i);
	dbm_close(db);
	db = open_with(O_RDONLY);
	CHECK(has_number(db, 1) && has_number(db, 1));
	jump_by_fault(db, fetch_it);
	in_child(writes_one, NULL);
	CHECK(has_number(db, 1000) || errno == EDEADLK);
	dbm_close(db);
}

static datum store_it(DBM *db, datum d)
{
	(void)dbm_store(db, text("k"), d, DBM_REPLACE);
	return d;
}

static void jump_out_of(datum (*call)(DBM *, datum))
{
	DBM *db = open_new();
	int i;

	put(db, "k", "v");
	jump_by_fault(db, call);
	for (i = 0; i < 3; i++) {
		errno = 0;
		CHECK(is(dbm_fetch(db, text("k")), "v") || errno == EDEADLK);
		errno = 0;
		CHECK(dbm_store(db, text("k2"), text("v"), DBM_REPLACE) == 0 || errno == EDEADLK);
		errno = 0;
		CHECK(dbm_delete(db, text("k2")) == 0 || errno == EDEADLK);
		errno = 0;
		CHECK(dbm_firstkey(db).dptr != NULL || errno == EDEADLK);
	}
	CHECK(!dbm_error(db));
	dbm_close(db);
	db = dbm_open(NAME, O_RDWR, 0);
	CHECK(db != NULL || errno == EDEADLK);
}

static void jumps_out_in_child(void *call) { jump_out_of(*(datum (**)(DBM *, datum))call); }

static void jump_out_of_engine(void)
{
	static datum (*const calls[])(DBM *, datum) = {fetch_it, store_it};
	DBM *db;
	size_t i;

	for (i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		in_child(jumps_out_in_child, (void *)&calls[i]);
		db = open_with(O_RDWR); /* what it had stored is there, and the lock is free */
		CHECK(is(dbm_fetch(db, text("k")), "v"));
		dbm_close(db);
	}
}

/* Another thread has left a call, and this one closes the database. */
static volatile int has_left;

static void *leaves_a_fetch(void *db)
{
	jump_by_fault(db, fetch_it);
	has_left = 1;
	while (pause() != 0)
		; /* to end is what such a thread cannot do any more */
	return NULL;
}

static void jump_out_in_thread(void)
{
	DBM *db = open_new(), *another = open_with(O_RDWR);
	pthread_t thread;

	put(db, "k", "v");
	CHECK(pthread_create(&thread, NULL, leaves_a_fetch, another) == 0);
	while (!has_left)
		usleep(1000);
	put(db, "k2", "v");
	dbm_close(another);
	CHECK(is(dbm_fetch(db, text("k2")), "v"));
	dbm_close(db);
}

/* With a timer's signal the jump may come at any place. */
static void jump_out_at_any_time(void *arg)
{
	struct itimerval t = {{0, 0}, {0, *(int *)arg}};
	DBM *db = open_with(O_RDONLY);
	int i;

	for (i = 0; i < 100; i++)
		CHECK(has_number(db, i));
	handle(SIGALRM, jumps);
	if (sigsetjmp(out, 1) == 0) {
		CHECK(setitimer(ITIMER_REAL, &t, NULL) == 0);
		for (i = 0;; i++)
			(void)has_number(db, i % 100);
	}
	CHECK(has_number(db, 1) || errno == EDEADLK);
	dbm_close(db);
}

static void jump_by_timer(void)
{
	DBM *db = open_new();
	int i, after;

	for (i = 0; i < 100; i++)
		put_number(db, i);
	dbm_close(db);
	for (i = 0; i < 10; i++) {
		after = 1000 + 13 * i;
		in_child(jump_out_at_any_time, &after);
	}
}

static void limits_stay(void)
{
	struct rlimit before = {256, 4096}, after;
	DBM *db;

	CHECK(getrlimit(RLIMIT_NOFILE, &after) == 0);
	before.rlim_max = after.rlim_max < 4096 ? after.rlim_max : 4096;
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	db = open_new();
	put(db, "k", "v");
	CHECK(getrlimit(RLIMIT_NOFILE, &after) == 0);
	CHECK(after.rlim_cur == 256 && after.rlim_max == before.rlim_max);
	dbm_close(db);
}

static void little_address_space(void)
{
	struct rlimit limit = {1 << 29, 1 << 29};
	DBM *db;

	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	errno = 0;
	db = dbm_open(NAME, O_RDWR | O_CREAT, 0666);
	CHECK(db != NULL || errno == ENOMEM); /* but does not end the program */
	if (db != NULL)
		dbm_close(db);
}

static void environment_stays(void)
{
	DBM *db;

	CHECK(setenv("GODEBUG", "nonsense=1", 1) == 0 && setenv("GOGC", "1", 1) == 0 && setenv("GOTRACEBACK", "crash", 1) == 0);
	db = open_new();
	put(db, "k", "v");
	CHECK(strcmp(getenv("GODEBUG"), "nonsense=1") == 0);
	dbm_close(db);
}

static void bad_arguments(void)
{
	DBM *db = open_new();
	datum bad = bytes(NULL, 5);

	CHECK(dbm_fetch(db, bad).dptr == NULL);
	CHECK(dbm_store(db, bad, text("v"), DBM_REPLACE) == -1);
	CHECK(dbm_store(db, text("k"), bad, DBM_REPLACE) == -1);
	CHECK(dbm_store(db, text("k"), text("v"), 17) != 0 || is(dbm_fetch(db, text("k")), "v"));
	CHECK(dbm_delete(db, bad) == -1);
	dbm_close(db);
}

/* A fault of the program's own is its own affair. */
static int *volatile nowhere;
static sigjmp_buf back;

static void faults_itself(void *arg)
{
	DBM *db = open_new();

	put(db, "k", "v");
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	*nowhere = 1;
}

static void jumps_back(int sig) { siglongjmp(back, sig); }

static void own_faults(void)
{
	int status, pid;
	DBM *db;

	nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid = start_child(faults_itself, NULL);
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	handle(SIGSEGV, jumps_back);
	db = open_new();
	put(db, "k", "v");
	if (sigsetjmp(back, 1) == 0) {
		*nowhere = 1;
		CHECK(0);
	}
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
	db = open_with(O_RDONLY);
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	if (sigsetjmp(back, 1) == 0) {
		*nowhere = 1;
		CHECK(0);
	}
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
}

/* A key or a value where nothing is: an error, not the end of the program. */
static void unreadable_arguments(void)
{
	datum bad = bytes(mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 5);
	DBM *db = open_new();
	int i;

	put(db, "key", "v");
	CHECK(dbm_store(db, text("k"), bad, DBM_REPLACE) == -1);
	CHECK(dbm_store(db, bad, text("v"), DBM_REPLACE) == -1);
	CHECK(dbm_fetch(db, bad).dptr == NULL && is(dbm_fetch(db, text("key")), "v"));
	dbm_close(db);
	db = open_with(O_RDONLY);
	for (i = 0; i < 3; i++)
		CHECK(dbm_fetch(db, bad).dptr == NULL && is(dbm_fetch(db, text("key")), "v"));
	dbm_close(db);
}

const struct check host_checks[] = {
	{"host: before the first open nothing is changed", nothing_before_open},
	{"signals: handlers run, installed before the open", alarms_before},
	{"signals: handlers run, installed after the open", alarms_after},
	{"signals: a profiling timer", profiling},
	{"signals: while opening and closing", open_under_timer},
	{"signals: the mask stays", masks_stay},
	{"signals: handlers stay", handlers_stay},
	{"signals: default actions stay", default_actions},
	{"signals: SIGCHLD blocked but in sigsuspend", waits_for_child_by_signal},
	{"signals: a handler that jumps out of a store", jump_out_of_store},
	{"signals: a handler that jumps out of a fetch", jump_out_of_fetch},
	{"signals: a jump out of a fetch, and another process that writes", jump_out_of_fetch_beside_writer},
	{"signals: a jump out of a fetch, by a timer", jump_by_timer},
	{"signals: a jump out of a faulty call of the engine", jump_out_of_engine},
	{"signals: a jump out of the engine in another thread", jump_out_in_thread},
	{"limits: of open files stays", limits_stay},
	{"limits: little address space", little_address_space},
	{"environment: Go's variables are not ours", environment_stays},
	{"signals: the program's own faults", own_faults},
	{"arguments: NULL with a size", bad_arguments},
	{"arguments: a key or value that cannot be read", unreadable_arguments},
};
END_TABLE(host_checks);
