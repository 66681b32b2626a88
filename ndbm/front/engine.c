/*
 * Loads the engine, a shared library with the runtime of Go in it.
 *
 * It is linked so that loading it runs nothing: flashdbm_engine_boot starts the runtime. So a process can have a second copy, loaded and
 * not started, for a child to start. The child then needs neither the file nor /proc, which it may not reach any more after chroot, nor
 * the dynamic loader. One library is loaded twice by way of a copy in memory, since the loader tells files by their inodes.
 *
 * What the program must not notice:
 *  - The runtime's threads block every signal, so that each is delivered to a thread of the program. They inherit the mask.
 *  - It is given arguments and an environment of our own. Preemption by signals is off: the program may use SIGURG itself. Stacks do not
 *    shrink: a signal handler of the program may come to run on one (see turn.h).
 *  - It raises the soft limit of open files; that is undone.
 */
#define _GNU_SOURCE
#include "engine.h"
#include "still.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENGINE_NAME "flashdbm/libflashdbm-engine.so"

/* The address space that the runtime and the engine's mappings reserve; below that limit the runtime would end the program. */
#define ADDRESS_SPACE ((rlim_t)4 << 30)

struct library {
	struct library *inherited; /* the parent's, dead here: its memory stays in use */
	void *handle;
	void (*boot)(int argc, char **argv, char **envp);
	struct engine functions;
};

/* Guarded by loading; running is also read without it. dead are those that forked children have inherited. */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static struct library *running, *spare, *dead;
static int loaded; /* whether the library itself, not a copy of it, is loaded */

/* The library's path: beside this one's. */
static int engine_path(char *path, size_t room)
{
	const char *given = secure_getenv("FLASHDBM_ENGINE");
	Dl_info self;
	const char *slash;
	int dir, n;

	if (given != NULL && *given != '\0') {
		n = snprintf(path, room, "%s", given);
	} else {
		if (dladdr(&running, &self) == 0 || self.dli_fname == NULL)
			return -1;
		slash = strrchr(self.dli_fname, '/');
		dir = slash == NULL ? 0 : (int)(slash - self.dli_fname) + 1;
		n = snprintf(path, room, "%.*s%s", dir, self.dli_fname, ENGINE_NAME);
	}
	return n > 0 && (size_t)n < room ? 0 : -1;
}

static struct library *load(const char *path)
{
	static const struct {
		const char *name;
		size_t at;
	} symbols[] = {
		{"flashdbm_engine_open", offsetof(struct engine, open)},
		{"flashdbm_engine_bind", offsetof(struct engine, bind)},
		{"flashdbm_engine_start", offsetof(struct engine, start)},
		{"flashdbm_engine_truncate", offsetof(struct engine, truncate)},
		{"flashdbm_engine_sync", offsetof(struct engine, sync)},
		{"flashdbm_engine_shut", offsetof(struct engine, shut)},
		{"flashdbm_engine_cancel", offsetof(struct engine, cancel)},
		{"flashdbm_engine_close", offsetof(struct engine, close)},
		{"flashdbm_engine_fetch", offsetof(struct engine, fetch)},
		{"flashdbm_engine_after", offsetof(struct engine, after)},
		{"flashdbm_engine_store", offsetof(struct engine, store)},
		{"flashdbm_engine_delete", offsetof(struct engine, remove)},
	};
	struct library *l = calloc(1, sizeof *l);
	void *symbol;
	size_t i;

	if (l == NULL)
		return NULL;
	l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (l->handle != NULL && (symbol = dlsym(l->handle, "flashdbm_engine_boot")) != NULL) {
		memcpy(&l->boot, &symbol, sizeof symbol);
		for (i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
			symbol = dlsym(l->handle, symbols[i].name);
			if (symbol == NULL)
				break;
			memcpy((char *)&l->functions + symbols[i].at, &symbol, sizeof symbol);
		}
		if (i == sizeof symbols / sizeof symbols[0])
			return l;
	}
	if (l->handle != NULL)
		dlclose(l->handle);
	free(l);
	return NULL;
}

/* Loads another copy of the library. */
static struct library *load_copy(void)
{
	char path[4096], copy[64];
	struct library *l = NULL;
	struct stat st;
	off_t at = 0;
	int in, out;

	if (engine_path(path, sizeof path) != 0)
		return NULL;
	in = open(path, O_RDONLY | O_CLOEXEC);
	if (in < 0)
		return NULL;
	out = memfd_create("flashdbm-engine", MFD_CLOEXEC);
	if (out >= 0 && fstat(in, &st) == 0) {
		while (at < st.st_size && sendfile(out, in, &at, (size_t)(st.st_size - at)) > 0)
			;
		if (at == st.st_size) {
			snprintf(copy, sizeof copy, "/proc/self/fd/%d", out);
			l = load(copy);
		}
	}
	if (out >= 0)
		close(out);
	close(in);
	return l;
}

/* Starts the runtime of a loaded library, with arguments, environment and auxiliary vector laid out as the kernel does. */
static void boot(struct library *l)
{
	static const unsigned long ids[] = {AT_SYSINFO_EHDR, AT_PAGESZ, AT_RANDOM, AT_HWCAP, AT_HWCAP2};
	static char name[] = "flashdbm", debug[] = "GODEBUG=asyncpreemptoff=1,gcshrinkstackoff=1";
	static void *vector[32];
	struct rlimit files;
	int known, n = 0;
	char **argv, **envp;
	size_t i;

	argv = (char **)&vector[n];
	vector[n++] = name;
	vector[n++] = NULL;
	envp = (char **)&vector[n];
	vector[n++] = debug;
	vector[n++] = NULL;
	for (i = 0; i < sizeof ids / sizeof ids[0]; i++) {
		unsigned long value = getauxval(ids[i]);

		if (value != 0) {
			vector[n++] = (void *)ids[i];
			vector[n++] = (void *)value;
		}
	}
	vector[n++] = (void *)AT_NULL;
	vector[n++] = NULL;
	known = getrlimit(RLIMIT_NOFILE, &files);
	still_guard();
	l->boot(1, argv, envp);
	l->functions.bind(); /* returns when the runtime is up and every package is initialized */
	if (known == 0)
		setrlimit(RLIMIT_NOFILE, &files);
}

static struct library *start(void)
{
	struct library *l = spare;
	struct rlimit space;
	char path[4096];

	if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY && space.rlim_cur < ADDRESS_SPACE) {
		errno = ENOMEM;
		return NULL;
	}
	spare = NULL;
	if (l == NULL && !loaded && engine_path(path, sizeof path) == 0 && (l = load(path)) != NULL)
		loaded = 1;
	else if (l == NULL)
		l = load_copy();
	if (l == NULL) {
		errno = ELIBACC;
		return NULL;
	}
	boot(l);
	return l;
}

const struct engine *engine_get(void)
{
	struct library *l = __atomic_load_n(&running, __ATOMIC_ACQUIRE);
	sigset_t all, before;

	if (l != NULL)
		return &l->functions;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_mutex_lock(&loading);
	l = running;
	if (l == NULL && (l = start()) != NULL) {
		__atomic_store_n(&running, l, __ATOMIC_RELEASE);
		if (geteuid() == 0) /* it may go where there is no file to load a copy from */
			spare = load_copy();
	}
	pthread_mutex_unlock(&loading);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return l == NULL ? NULL : &l->functions;
}

void engine_prepare_spare(void)
{
	int saved = errno;

	pthread_mutex_lock(&loading);
	if (spare == NULL && running != NULL)
		spare = load_copy();
	pthread_mutex_unlock(&loading);
	errno = saved;
}

void engine_forget(void)
{
	static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;

	loading = unlocked;
	if (running != NULL) {
		running->inherited = dead;
		dead = running;
	}
	running = NULL;
}
