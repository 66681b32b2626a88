/* Handles of one process, other processes, fork, kill. */
#define _GNU_SOURCE
#include "records.h"

#include "checks.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STORED 1000
#define DEFAULT_TIMEOUT 9900 /* milliseconds, about */

/* A pipe by which one process tells another to go on. */
struct gate {
	int fds[2];
};

static void gate_make(struct gate *g) { CHECK(pipe(g->fds) == 0); }
static void gate_open(struct gate *g) { CHECK(write(g->fds[1], "x", 1) == 1); }
static void gate_pass(struct gate *g)
{
	char c;

	while (read(g->fds[0], &c, 1) != 1)
		CHECK(errno == EINTR);
}

static void two_writing_handles(void)
{
	DBM *a = open_new(), *b = open_with(O_RDWR);

	put(a, "of a", "1");
	CHECK(is(dbm_fetch(b, text("of a")), "1"));
	put(b, "of b", "2");
	CHECK(is(dbm_fetch(a, text("of b")), "2"));
	CHECK(dbm_delete(a, text("of b")) == 0 && dbm_fetch(b, text("of b")).dptr == NULL);
	dbm_close(a);
	put(b, "later", "3");
	CHECK(count(b) == 2);
	dbm_close(b);
}

static void reading_beside_writing_handle(void)
{
	DBM *w = open_new(), *r;

	put(w, "k", "1");
	r = open_with(O_RDONLY);
	CHECK(is(dbm_fetch(r, text("k")), "1"));
	put(w, "k", "2");
	CHECK(is(dbm_fetch(r, text("k")), "2"));
	CHECK(dbm_store(r, text("k"), text("3"), DBM_REPLACE) == -1);
	dbm_close(w);
	CHECK(is(dbm_fetch(r, text("k")), "2"));
	w = open_with(O_RDWR);
	put(w, "k", "4");
	CHECK(is(dbm_fetch(r, text("k")), "4"));
	dbm_close(r);
	dbm_close(w);
}

static void writing_opened_beside_reading_handle(void)
{
	DBM *r, *w = open_new();

	put(w, "k", "1");
	dbm_close(w);
	r = open_with(O_RDONLY);
	CHECK(is(dbm_fetch(r, text("k")), "1"));
	w = open_with(O_RDWR);
	put(w, "k", "2");
	CHECK(is(dbm_fetch(r, text("k")), "2"));
	dbm_close(w);
	dbm_close(r);
}

static void dies_by_kill(void *arg)
{
	DBM *db = open_new();
	int i;

	for (i = 0; i < 500; i++)
		put_number(db, i);
	CHECK(dbm_delete(db, text("key7")) == 0);
	gate_open(arg);
	pause();
}

static void killed(void)
{
	struct gate stored;
	DBM *db;
	int pid, i;

	gate_make(&stored);
	pid = start_child(dies_by_kill, &stored);
	gate_pass(&stored);
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	db = open_with(O_RDWR);
	for (i = 0; i < 500; i++)
		CHECK(has_number(db, i) == (i != 7));
	CHECK(count(db) == 499);
	dbm_close(db);
}

static void exits_without_close(void *arg)
{
	put(open_new(), "k", "v");
	exit(0);
}

static void exited(void)
{
	DBM *db;

	in_child(exits_without_close, NULL);
	db = open_with(O_RDONLY);
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
}

struct conversation {
	struct gate there, back;
};

static void conversation_make(struct conversation *c)
{
	gate_make(&c->there);
	gate_make(&c->back);
}

/* Reads what the other process has just stored, ten times. */
static void reads_what_is_stored(void *arg)
{
	struct conversation *c = arg;
	DBM *db = NULL;
	int i;

	for (i = 0; i < 10; i++) {
		gate_pass(&c->there);
		if (db == NULL)
			db = open_with(O_RDONLY);
		CHECK(has_number(db, i));
		gate_open(&c->back);
	}
	dbm_close(db);
}

static void reader_in_another_process(void)
{
	struct conversation c;
	DBM *db;
	int pid, i;

	conversation_make(&c);
	pid = start_child(reads_what_is_stored, &c);
	db = open_new();
	for (i = 0; i < 10; i++) {
		put_number(db, i);
		gate_open(&c.there);
		gate_pass(&c.back);
	}
	wait_for(pid);
	dbm_close(db);
}

#define TURNS 20

/* Takes turns under a lock of its own on .dir, with the database open all the time. */
static void takes_turns(void *arg)
{
	int i, who = *(int *)arg;
	DBM *db = open_with(O_RDWR | O_CREAT);
	datum d;

	for (i = 0; i < TURNS; i++) {
		int n = 0;

		while (flock(dbm_dirfno(db), LOCK_EX) != 0)
			CHECK(errno == EINTR);
		d = dbm_fetch(db, text("sum"));
		if (d.dptr != NULL) {
			CHECK((size_t)d.dsize == sizeof n);
			memcpy(&n, d.dptr, sizeof n);
		}
		n++;
		CHECK(dbm_store(db, text("sum"), bytes(&n, sizeof n), DBM_REPLACE) == 0);
		put_number(db, who * 1000 + i);
		CHECK(flock(dbm_dirfno(db), LOCK_UN) == 0);
	}
	dbm_close(db);
}

static void two_writers_take_turns(void)
{
	int one = 1, two = 2, a, b, n;
	DBM *db = open_new();
	datum d;

	dbm_close(db);
	a = start_child(takes_turns, &one);
	b = start_child(takes_turns, &two);
	wait_for(a);
	wait_for(b);
	db = open_with(O_RDONLY);
	d = dbm_fetch(db, text("sum"));
	CHECK(d.dptr != NULL && (size_t)d.dsize == sizeof n);
	memcpy(&n, d.dptr, sizeof n);
	CHECK(n == 2 * TURNS && count(db) == 2 * TURNS + 1);
	dbm_close(db);
}

/* Opens the gate in the middle of it. */
static void stores_in_a_loop(void *arg)
{
	DBM *db = open_with(O_RDWR);
	int i;

	for (i = 0;; i++) {
		put_number(db, i % STORED);
		if (i == STORED)
			gate_open(arg);
	}
}

static void second_writer_beside_busy_one(void)
{
	struct gate running;
	DBM *db = open_new();
	int pid, i;

	dbm_close(db);
	gate_make(&running);
	pid = start_child(stores_in_a_loop, &running);
	gate_pass(&running);
	for (i = 0; i < 10; i++) {
		db = open_with(O_RDWR);
		put(db, "mine", "v");
		CHECK(is(dbm_fetch(db, text("mine")), "v"));
		dbm_close(db);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#ifdef LIBRARY_FLASHDBM
static void second_writer_times_out(void)
{
	struct gate running;
	struct timespec a, b;
	DBM *db = open_new();
	int pid, status, try, waited = DEFAULT_TIMEOUT;

	dbm_close(db);
	gate_make(&running);
	pid = start_child(stores_in_a_loop, &running);
	gate_pass(&running);
	CHECK(kill(pid, SIGSTOP) == 0 && waitpid(pid, &status, WUNTRACED) == pid);
	setenv("FLASHDBM_LOCK_TIMEOUT", "300ms", 1);
	for (try = 0; try < 5 && waited >= DEFAULT_TIMEOUT; try++) { /* a busy machine may hold it up, but not each time */
		clock_gettime(CLOCK_MONOTONIC, &a);
		errno = 0;
		CHECK(dbm_open(NAME, O_RDWR, 0) == NULL && errno == EAGAIN);
		clock_gettime(CLOCK_MONOTONIC, &b);
		waited = (int)((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000);
		CHECK(waited >= 290);
	}
	CHECK(waited < DEFAULT_TIMEOUT);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	setenv("FLASHDBM_LOCK_TIMEOUT", PATIENCE, 1);
	db = open_with(O_RDWR);
	CHECK(count(db) == STORED);
	dbm_close(db);
}

/* A writer that does not move holds nobody up who only reads. */
static void reads_beside_stopped_writer(void)
{
	struct gate running;
	DBM *db = open_new();
	int pid, status, i, n;

	dbm_close(db);
	gate_make(&running);
	pid = start_child(stores_in_a_loop, &running);
	gate_pass(&running);
	CHECK(kill(pid, SIGSTOP) == 0 && waitpid(pid, &status, WUNTRACED) == pid);
	setenv("FLASHDBM_LOCK_TIMEOUT", "0", 1);
	db = open_with(O_RDONLY);
	n = count(db);
	CHECK(n > 0 && !dbm_error(db) && has_number(db, 0));
	CHECK(kill(pid, SIGCONT) == 0);
	for (i = 0; i < 200; i++) {
		CHECK(has_number(db, 0));
		CHECK(count(db) >= n);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (i = 0; i < 5; i++) {
		CHECK(has_number(db, 0));
		usleep(60000);
	}
	dbm_close(db);
}
#endif

/* ---- fork ---- */

static void reads_inherited(void *db)
{
	int i;

	for (i = 0; i < 100; i++)
		CHECK(has_number(db, i));
	CHECK(count(db) == 100);
}

static void child_reads(void)
{
	DBM *db = open_new();
	int i;

	for (i = 0; i < 100; i++)
		put_number(db, i);
	in_child(reads_inherited, db);
	put_number(db, 100);
	CHECK(has_number(db, 100) && has_number(db, 5));
	dbm_close(db);
}

static void writes_inherited(void *db)
{
	CHECK(has_number(db, 0));
	put_number(db, 1);
	CHECK(has_number(db, 1));
	dbm_close(db);
}

static void child_writes(void)
{
	DBM *db = open_new();

	put_number(db, 0);
	in_child(writes_inherited, db);
	CHECK(has_number(db, 1));
	put_number(db, 2);
	CHECK(count(db) == 3);
	dbm_close(db);
	db = open_with(O_RDONLY);
	CHECK(count(db) == 3);
	dbm_close(db);
}

static void opens_its_own(void *inherited)
{
	DBM *db = dbm_open("own", O_RDWR | O_CREAT, 0666);
	int i;

	CHECK(db != NULL);
	for (i = 0; i < 100; i++)
		put_number(db, i);
	CHECK(count(db) == 100);
	dbm_close(db);
	dbm_close(inherited);
}

static void child_opens_its_own(void)
{
	DBM *db = open_new();

	put_number(db, 0);
	in_child(opens_its_own, db);
	put_number(db, 1);
	CHECK(count(db) == 2);
	dbm_close(db);
	db = dbm_open("own", O_RDONLY, 0);
	CHECK(db != NULL && count(db) == 100);
	dbm_close(db);
}

static void forks_again(void *db)
{
	put_number(db, 1);
	in_child(writes_inherited, db);
	put_number(db, 2);
	in_child(writes_inherited, db);
	dbm_close(db);
}

static void grandchild(void)
{
	DBM *db = open_new();

	put_number(db, 0);
	in_child(forks_again, db);
	CHECK(has_number(db, 1) && has_number(db, 2));
	dbm_close(db);
}

/* The parent is gone, without a close, before the child goes on. */
static void daemon_parent(void *arg)
{
	struct gate *done = arg;
	DBM *db = open_new();
	int i = 0;

	put_number(db, 0);
	if (fork() != 0)
		_exit(0);
	setsid();
	while (getppid() != 1 && i < 100) {
		usleep(10000);
		i++;
	}
	for (i = 1; i < 200; i++)
		put_number(db, i);
	dbm_close(db);
	gate_open(done);
}

static void daemon_goes_on(void)
{
	struct gate done;
	DBM *db;

	gate_make(&done);
	in_child(daemon_parent, &done);
	gate_pass(&done);
	db = open_with(O_RDONLY);
	CHECK(count(db) == 200);
	dbm_close(db);
}

static void daemon_idle(void *arg)
{
	struct conversation *c = arg;
	DBM *db = open_new();

	put_number(db, 0);
	if (fork() != 0)
		_exit(0);
	gate_open(&c->there);
	gate_pass(&c->back); /* has the database open and does nothing */
	CHECK(has_number(db, 1));
	dbm_close(db);
	gate_open(&c->there);
}

static void daemon_keeps_no_lock(void)
{
	struct conversation c;
	DBM *db;

	conversation_make(&c);
	in_child(daemon_idle, &c);
	gate_pass(&c.there);
	db = open_with(O_RDWR);
	put_number(db, 1);
	dbm_close(db);
	gate_open(&c.back);
	gate_pass(&c.there);
}

static void stores_3k(void *db)
{
	char value[3072], key[32];
	int i, n = scaled(20000);

	memset(value, 'v', sizeof value);
	for (i = 0; i < n; i++) {
		snprintf(key, sizeof key, "key%d", i);
		memcpy(value, key, strlen(key));
		CHECK(dbm_store(db, text(key), bytes(value, sizeof value), DBM_INSERT) == 0);
	}
	dbm_close(db);
}

static void child_stores_much(void)
{
	DBM *db = open_new();
	datum d;

	put(db, "before", "v");
	in_child(stores_3k, db);
	CHECK(count(db) == scaled(20000) + 1);
	d = dbm_fetch(db, text("key999"));
	CHECK(d.dptr != NULL && d.dsize == 3072 && memcmp(d.dptr, "key999v", 7) == 0);
	dbm_close(db);
}

struct one_of_many {
	DBM *db;
	int number;
};

static void stores_its_own(void *arg)
{
	struct one_of_many *m = arg;
	int i;

	for (i = 0; i < 20; i++)
		put_number(m->db, m->number * 100 + i);
	exit(0);
}

static void many_children_at_once(void)
{
	DBM *db = open_new();
	struct one_of_many m[8];
	int pids[8], i, j;

	for (i = 0; i < 8; i++) {
		m[i].db = db;
		m[i].number = i;
		pids[i] = start_child(stores_its_own, &m[i]);
	}
	for (i = 0; i < 20; i++)
		put_number(db, 10000 + i);
	for (i = 0; i < 8; i++)
		wait_for(pids[i]);
	for (i = 0; i < 8; i++)
		for (j = 0; j < 20; j++)
			CHECK(has_number(db, i * 100 + j));
	CHECK(count(db) == 180);
	dbm_close(db);
}

static void child_only_execs(void)
{
	DBM *db = open_new();
	int i, status, pid;

	for (i = 0; i < 20; i++) {
		put_number(db, i);
		pid = fork();
		if (pid == 0) {
			execl("/bin/true", "true", (char *)NULL);
			_exit(1);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
	CHECK(count(db) == 20);
	dbm_close(db);
}

static void child_of_read_only(void)
{
	DBM *db = open_new();
	int i;

	for (i = 0; i < 100; i++)
		put_number(db, i);
	dbm_close(db);
	db = open_with(O_RDONLY);
	CHECK(has_number(db, 1));
	in_child(reads_inherited, db);
	CHECK(has_number(db, 2));
	dbm_close(db);
}

static void becomes_nobody_and_writes(void *db)
{
	become_nobody();
	CHECK(has_number(db, 0));
	put_number(db, 1);
	dbm_close(db);
}

static void child_without_rights(void)
{
	DBM *db;

	if (!is_root())
		skip_check("only root can give up rights");
	db = dbm_open(NAME, O_RDWR | O_CREAT, 0600);
	CHECK(db != NULL);
	put_number(db, 0);
	in_child(becomes_nobody_and_writes, db);
	CHECK(has_number(db, 1));
	dbm_close(db);
}

static void nobody_forks(void *db)
{
	become_nobody();
	put_number(db, 1);
	in_child(writes_inherited, db);
	put_number(db, 2);
	CHECK(count(db) == 3);
	dbm_close(db);
}

static void fork_without_rights(void)
{
	DBM *db;

	if (!is_root())
		skip_check("only root can give up rights");
	db = dbm_open(NAME, O_RDWR | O_CREAT, 0600);
	CHECK(db != NULL);
	put_number(db, 0);
	in_child(nobody_forks, db);
	CHECK(count(db) == 3);
	dbm_close(db);
}

static void goes_to_cage(void *db)
{
	CHECK(mkdir("cage", 0755) == 0 && chroot("cage") == 0 && chdir("/") == 0);
	become_nobody();
	CHECK(has_number(db, 0));
	put_number(db, 1);
	dbm_close(db);
}

static void child_in_cage(void)
{
	DBM *db;

	if (!is_root())
		skip_check("only root can chroot");
	db = open_new();
	put_number(db, 0);
	in_child(goes_to_cage, db);
	CHECK(has_number(db, 1));
	dbm_close(db);
}

static void fork_in_cage(void)
{
	DBM *db;

	if (!is_root())
		skip_check("only root can chroot");
	db = open_new();
	put_number(db, 0);
	CHECK(mkdir("cage", 0755) == 0 && chroot("cage") == 0 && chdir("/") == 0);
	in_child(writes_inherited, db);
	CHECK(has_number(db, 1));
	dbm_close(db);
}

/* ---- threads ---- */

static void *thread_stores(void *arg)
{
	DBM *db = open_with(O_RDWR);
	int i, from = *(int *)arg * 1000;

	for (i = 0; i < 200; i++) {
		put_number(db, from + i);
		CHECK(has_number(db, from + i));
	}
	dbm_close(db);
	return NULL;
}

static void threads_with_handles(void)
{
	pthread_t threads[4];
	int numbers[4], i;
	DBM *db = open_new();

	for (i = 0; i < 4; i++) {
		numbers[i] = i;
		CHECK(pthread_create(&threads[i], NULL, thread_stores, &numbers[i]) == 0);
	}
	for (i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(count(db) == 800);
	dbm_close(db);
}

static void *thread_forks(void *arg)
{
	in_child(writes_inherited, arg);
	return NULL;
}

static void fork_in_a_thread(void)
{
	DBM *db = open_new();
	pthread_t t;

	put_number(db, 0);
	CHECK(pthread_create(&t, NULL, thread_forks, db) == 0 && pthread_join(t, NULL) == 0);
	CHECK(has_number(db, 1));
	dbm_close(db);
}

const struct check process_checks[] = {
	{"handles: two that write", two_writing_handles},
	{"handles: one reads beside one that writes", reading_beside_writing_handle},
	{"handles: one that writes opened beside one that reads", writing_opened_beside_reading_handle},
	{"processes: stores survive SIGKILL", killed},
	{"processes: stores survive exit without close", exited},
	{"processes: a store is visible to another at once", reader_in_another_process},
	{"processes: two long-lived writers take turns", two_writers_take_turns},
	{"processes: a second writer beside a busy one", second_writer_beside_busy_one},
#ifdef LIBRARY_FLASHDBM
	{"processes: EAGAIN when the other does not let go", second_writer_times_out},
	{"processes: a reader beside a writer that is stopped, goes on, is killed", reads_beside_stopped_writer},
#endif
	{"fork: the child reads", child_reads},
	{"fork: the child writes", child_writes},
	{"fork: the child opens its own", child_opens_its_own},
	{"fork: grandchildren", grandchild},
	{"fork: a daemon whose parent is gone", daemon_goes_on},
	{"fork: a daemon that idles keeps no lock", daemon_keeps_no_lock},
	{"fork: 20,000 stores of 3 KB in the child", child_stores_much},
	{"fork: eight children and the parent at once", many_children_at_once},
	{"fork: children that only exec", child_only_execs},
	{"fork: the child of a reader", child_of_read_only},
	{"fork: the child gives up its rights", child_without_rights},
	{"fork: rights given up before", fork_without_rights},
	{"fork: the child goes to a chroot", child_in_cage},
	{"fork: in a chroot", fork_in_cage},
	{"fork: in a thread", fork_in_a_thread},
	{"threads: a handle each", threads_with_handles},
};
END_TABLE(process_checks);
