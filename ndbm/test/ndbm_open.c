/* Opening: flags, files, descriptors. */
#define _GNU_SOURCE
#include "records.h"

#include "checks.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int exists(const char *path) { return access(path, F_OK) == 0; }

/* The entries of the directory. */
static int entries(void)
{
	DIR *d = opendir(".");
	int n = -2;

	CHECK(d != NULL);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static void makes_two_files(void)
{
	DBM *db = open_new();

	CHECK(exists(NAME ".dir") && exists(NAME ".pag"));
	dbm_close(db);
	CHECK(exists(NAME ".dir") && exists(NAME ".pag"));
}

static void no_other_file(void)
{
	DBM *db = open_new();
	int i;

	CHECK(entries() == 2);
	for (i = 0; i < 2000; i++)
		put_number(db, i);
	CHECK(entries() == 2);
	dbm_close(db);
	CHECK(entries() == 2);
}

static void bare_name_untouched(void)
{
	int fd = open(NAME, O_CREAT | O_WRONLY, 0600);
	struct stat before, after;
	DBM *db;

	CHECK(write(fd, "mine", 4) == 4 && close(fd) == 0 && stat(NAME, &before) == 0);
	db = open_new();
	put(db, "k", "v");
	dbm_close(db);
	CHECK(stat(NAME, &after) == 0 && after.st_size == 4 && after.st_ino == before.st_ino);
	CHECK(after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
}

static void absent(void)
{
	errno = 0;
	CHECK(dbm_open(NAME, O_RDWR, 0666) == NULL && errno == ENOENT);
	errno = 0;
	CHECK(dbm_open(NAME, O_RDONLY, 0666) == NULL && errno == ENOENT);
	CHECK(entries() == 0);
	errno = 0;
	CHECK(dbm_open("no/such/directory", O_RDWR | O_CREAT, 0666) == NULL && errno == ENOENT);
}

static void exclusive(void)
{
	DBM *db = open_with(O_RDWR | O_CREAT | O_EXCL);

	put(db, "k", "v");
	dbm_close(db);
	errno = 0;
	CHECK(dbm_open(NAME, O_RDWR | O_CREAT | O_EXCL, 0666) == NULL && errno == EEXIST);
	db = open_with(O_RDWR);
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
}

static void truncates_only_as_asked(void)
{
	DBM *db = open_new();

	put(db, "k", "v");
	dbm_close(db);
	db = open_with(O_RDWR | O_CREAT);
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
	db = open_with(O_RDWR | O_CREAT | O_TRUNC);
	CHECK(dbm_fetch(db, text("k")).dptr == NULL && dbm_firstkey(db).dptr == NULL);
	put(db, "new", "v");
	dbm_close(db);
	db = open_with(O_RDWR);
	CHECK(count(db) == 1);
	dbm_close(db);
}

static void write_only_reads_too(void)
{
	DBM *db = open_with(O_WRONLY | O_CREAT);

	put(db, "k", "v");
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
}

static void mode_and_umask(void)
{
	struct stat st;
	DBM *db;

	umask(027);
	db = dbm_open(NAME, O_RDWR | O_CREAT, 0666);
	CHECK(db != NULL);
	CHECK(stat(NAME ".pag", &st) == 0 && (st.st_mode & 07777) == 0640);
	CHECK(stat(NAME ".dir", &st) == 0 && (st.st_mode & 07777) == 0640);
	dbm_close(db);
}

static void created_unwritable(void)
{
	DBM *db;

	become_nobody();
	db = dbm_open(NAME, O_RDWR | O_CREAT, 0444);
	CHECK(db != NULL);
	put(db, "k", "v");
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
	db = open_with(O_RDONLY);
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
}

static void not_permitted(void)
{
	DBM *db = open_new();

	dbm_close(db);
	CHECK(chmod(NAME ".pag", 0) == 0 && chmod(NAME ".dir", 0) == 0);
	become_nobody();
	errno = 0;
	CHECK(dbm_open(NAME, O_RDONLY, 0) == NULL && errno == EACCES);
	CHECK(dbm_open(NAME, O_RDWR, 0) == NULL && errno == EACCES);
}

static void make_empty(void)
{
	int i, fd;

	for (i = 0; i < 2; i++) {
		fd = open(i ? NAME ".dir" : NAME ".pag", O_CREAT | O_WRONLY, 0644);
		CHECK(fd >= 0 && close(fd) == 0);
	}
}

static void empty_files(void)
{
	DBM *db;

	make_empty();
	db = open_with(O_RDWR);
	CHECK(dbm_firstkey(db).dptr == NULL && !dbm_error(db));
	put(db, "k", "v");
	dbm_close(db);
	db = open_with(O_RDWR);
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
}

static void empty_files_read_only(void)
{
	DBM *db;

	make_empty();
	db = open_with(O_RDONLY);
	CHECK(dbm_firstkey(db).dptr == NULL && dbm_fetch(db, text("k")).dptr == NULL && !dbm_error(db));
	dbm_close(db);
}

static void renamed(void)
{
	DBM *db = open_new();

	put(db, "k", "v");
	dbm_close(db);
	CHECK(rename(NAME ".pag", "other.pag") == 0 && rename(NAME ".dir", "other.dir") == 0);
	db = dbm_open("other", O_RDWR, 0);
	CHECK(db != NULL && is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
	CHECK(entries() == 2);
}

static void renamed_while_open(void)
{
	DBM *db = open_new();

	put(db, "k", "v");
	CHECK(rename(NAME ".pag", "other.pag") == 0 && rename(NAME ".dir", "other.dir") == 0);
	put(db, "k2", "v2");
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
	db = dbm_open("other", O_RDWR, 0);
	CHECK(db != NULL && is(dbm_fetch(db, text("k2")), "v2"));
	dbm_close(db);
}

static void copied(void)
{
	DBM *db = open_new();
	int i;

	for (i = 0; i < 500; i++)
		put_number(db, i);
	dbm_close(db);
	CHECK(system("cat " NAME ".pag >copy.pag && cat " NAME ".dir >copy.dir") == 0);
	CHECK(unlink(NAME ".pag") == 0 && unlink(NAME ".dir") == 0);
	db = dbm_open("copy", O_RDONLY, 0);
	CHECK(db != NULL && count(db) == 500 && has_number(db, 77));
	dbm_close(db);
}

static void read_only_files(void)
{
	DBM *db = open_new();

	put(db, "k", "v");
	dbm_close(db);
	CHECK(chmod(NAME ".pag", 0444) == 0 && chmod(NAME ".dir", 0444) == 0 && chmod(".", 0555) == 0);
	become_nobody();
	db = open_with(O_RDONLY);
	CHECK(is(dbm_fetch(db, text("k")), "v") && count(db) == 1);
	dbm_close(db);
}

static void used_after_chdir(void)
{
	DBM *db = open_new();

	put(db, "k", "v");
	CHECK(chdir("/") == 0);
	put(db, "k2", "v2");
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
}

static void used_after_chroot(void)
{
	DBM *db;

	if (!is_root())
		skip_check("only root can chroot");
	db = open_new();
	put(db, "k", "v");
	CHECK(mkdir("cage", 0755) == 0 && chroot("cage") == 0 && chdir("/") == 0);
	put(db, "k2", "v2");
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	dbm_close(db);
}

static void own_descriptors(void)
{
	DBM *db = open_new();
	struct stat file, opened;

	CHECK(dbm_dirfno(db) >= 0 && dbm_pagfno(db) >= 0 && dbm_dirfno(db) != dbm_pagfno(db));
	CHECK(stat(NAME ".dir", &file) == 0 && fstat(dbm_dirfno(db), &opened) == 0);
	CHECK(file.st_ino == opened.st_ino && file.st_dev == opened.st_dev);
	CHECK(stat(NAME ".pag", &file) == 0 && fstat(dbm_pagfno(db), &opened) == 0);
	CHECK(file.st_ino == opened.st_ino && file.st_dev == opened.st_dev);
	CHECK(fcntl(dbm_dirfno(db), F_GETFL) >= 0 && fcntl(dbm_pagfno(db), F_GETFL) >= 0);
	dbm_close(db);
}

static void above_standard_streams(void)
{
	DBM *db;
	char link[64], target[512];
	int fd;

	close(0);
	close(2);
	db = open_new();
	put(db, "k", "v");
	for (fd = 0; fd <= 2; fd++) {
		ssize_t n;

		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		n = readlink(link, target, sizeof target - 1);
		target[n < 0 ? 0 : n] = '\0';
		CHECK(strstr(target, NAME ".") == NULL);
	}
	dbm_close(db);
}

/* How many descriptors are open on the two files. */
static int descriptors(void)
{
	char link[64], target[512];
	int fd, n = 0;
	ssize_t size;

	for (fd = 0; fd < 1024; fd++) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		size = readlink(link, target, sizeof target - 1);
		target[size < 0 ? 0 : size] = '\0';
		n += strstr(target, "/" NAME ".") != NULL;
	}
	return n;
}

static void closes_descriptors(void)
{
	DBM *first = open_new(), *db;
	int i, before = 0;

	for (i = 0; i < 300; i++) {
		db = open_with(i % 2 ? O_RDWR : O_RDONLY);
		CHECK(is(dbm_fetch(db, text("x")), "y") == 0);
		dbm_close(db);
		if (i == 2)
			before = descriptors();
	}
	CHECK(descriptors() <= before);
	dbm_close(first);
	CHECK(descriptors() == 0);
}

static void locks_first_tebibyte(void *name)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = (off_t)1 << 40};
	int fd = open(name, O_RDWR);

	CHECK(fd >= 0 && fcntl(fd, F_SETLK, &l) == 0);
	l.l_type = F_UNLCK;
	CHECK(fcntl(fd, F_SETLK, &l) == 0);
	CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
}

static void locks_all(void *name)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(name, O_RDWR);

	CHECK(fd >= 0 && fcntl(fd, F_SETLK, &l) == 0);
}

static void no_lock_on_dir(void)
{
	DBM *db = open_new();

	put(db, "k", "v");
	in_child(locks_all, NAME ".dir");
	in_child(locks_first_tebibyte, NAME ".dir");
	put(db, "k", "v2");
	dbm_close(db);
}

static void no_lock_on_whole_pag(void)
{
	DBM *db = open_new();

	put(db, "k", "v");
	in_child(locks_first_tebibyte, NAME ".pag");
	put(db, "k", "v2");
	dbm_close(db);
}

/* Fails if the first bytes of the file are not locked. */
static void finds_lock(void *name)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 100};
	int fd = open(name, O_RDWR);

	CHECK(fd >= 0 && fcntl(fd, F_GETLK, &l) == 0);
	CHECK(l.l_type == F_WRLCK);
}

static void keeps_locks(int (*descriptor)(DBM *), const char *name)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 100};
	DBM *db = open_new(), *other;

	CHECK(fcntl(descriptor(db), F_SETLK, &l) == 0);
	put(db, "k", "v");
	CHECK(is(dbm_fetch(db, text("k")), "v"));
	in_child(finds_lock, (void *)name);
	other = open_with(O_RDONLY);
	CHECK(is(dbm_fetch(other, text("k")), "v"));
	dbm_close(other);
	in_child(finds_lock, (void *)name);
	other = open_with(O_RDWR);
	put(other, "k", "v2");
	dbm_close(other);
	in_child(finds_lock, (void *)name);
	usleep(100000);
	in_child(finds_lock, (void *)name);
	dbm_close(db);
}

static int dirfno(DBM *db) { return dbm_dirfno(db); }
static int pagfno(DBM *db) { return dbm_pagfno(db); }

static void keeps_locks_on_dir(void) { keeps_locks(dirfno, NAME ".dir"); }
static void keeps_locks_on_pag(void) { keeps_locks(pagfno, NAME ".pag"); }

static void foreign_file(void)
{
	int fd;
	char block[16384];

	memset(block, 'x', sizeof block);
	fd = open(NAME ".pag", O_CREAT | O_WRONLY, 0644);
	CHECK(fd >= 0 && write(fd, block, sizeof block) == sizeof block && close(fd) == 0);
	fd = open(NAME ".dir", O_CREAT | O_WRONLY, 0644);
	CHECK(fd >= 0 && close(fd) == 0);
	errno = 0;
	CHECK(dbm_open(NAME, O_RDWR | O_CREAT, 0644) == NULL && errno != 0);
	fd = open(NAME ".pag", O_RDONLY);
	memset(block, 0, sizeof block);
	CHECK(read(fd, block, sizeof block) == sizeof block && block[0] == 'x' && block[16383] == 'x');
}

static void complete_type(void)
{
	CHECK(sizeof(DBM) > 0);
	CHECK(sizeof(((datum *)0)->dsize) == sizeof(size_t));
}

const struct check open_checks[] = {
	{"open: makes .dir and .pag", makes_two_files},
	{"open: makes no other file", no_other_file},
	{"open: leaves the bare name alone", bare_name_untouched},
	{"open: ENOENT without O_CREAT", absent},
	{"open: O_EXCL", exclusive},
	{"open: O_TRUNC only as asked", truncates_only_as_asked},
	{"open: O_WRONLY is O_RDWR", write_only_reads_too},
	{"open: mode and umask", mode_and_umask},
	{"open: created with a mode that forbids writing", created_unwritable},
	{"open: EACCES", not_permitted},
	{"open: empty files are an empty database", empty_files},
	{"open: empty files, read-only", empty_files_read_only},
	{"open: both files renamed", renamed},
	{"open: both files renamed while open", renamed_while_open},
	{"open: both files copied", copied},
	{"open: 0444 files in a 0555 directory", read_only_files},
	{"open: used after chdir", used_after_chdir},
	{"open: used after chroot", used_after_chroot},
	{"open: a file of another kind is refused and left alone", foreign_file},
	{"open: DBM is complete, dsize a size_t", complete_type},
	{"descriptors: dirfno and pagfno are of the two files", own_descriptors},
	{"descriptors: none is a standard stream's", above_standard_streams},
	{"descriptors: all closed with the last handle, none piles up", closes_descriptors},
	{"locks: none of ours on .dir", no_lock_on_dir},
	{"locks: none of ours on the whole of .pag", no_lock_on_whole_pag},
	{"locks: the program's on .dir stay", keeps_locks_on_dir},
	{"locks: the program's on .pag stay", keeps_locks_on_pag},
};
END_TABLE(open_checks);
