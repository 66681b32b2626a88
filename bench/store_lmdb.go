//go:build cstores

package main

/*
#cgo LDFLAGS: -llmdb
#include <lmdb.h>
#include "pack.h"

struct lmdb { MDB_env *env; MDB_dbi dbi; };
static int lmdb_appending; // MDB_APPEND if keys ascend

struct lmdb_conn { struct lmdb *db; MDB_txn *view, *write; int viewing; };

static int lmdb_failed(char *message, const char *what, int code) { return out_failed(message, what, mdb_strerror(code)); }

static void *lmdb_open(const char *dir, int durable, int clients, uint64_t cache, char *message) {
	struct lmdb *db = calloc(1, sizeof *db);
	MDB_txn *txn = NULL;
	int e;
	if ((e = mdb_env_create(&db->env)) || (e = mdb_env_set_mapsize(db->env, (size_t)32 << 30)) ||
	    (e = mdb_env_open(db->env, dir, MDB_NOTLS | (durable ? 0 : MDB_NOSYNC), 0600)) ||
	    (e = mdb_txn_begin(db->env, NULL, 0, &txn)) || (e = mdb_dbi_open(txn, NULL, 0, &db->dbi)) || (e = mdb_txn_commit(txn))) {
		lmdb_failed(message, "open", e);
		return NULL;
	}
	return db;
}

static int lmdb_sync(void *store, char *message) {
	int e = mdb_env_sync(((struct lmdb *)store)->env, 1);
	return e ? lmdb_failed(message, "sync", e) : 0;
}

static int lmdb_close(void *store, char *message) {
	struct lmdb *db = store;
	int e = mdb_env_sync(db->env, 1);
	mdb_env_close(db->env);
	free(db);
	return e ? lmdb_failed(message, "close", e) : 0;
}

static void *lmdb_connect(void *store) {
	struct lmdb_conn *c = calloc(1, sizeof *c);
	c->db = store;
	return c;
}

static void lmdb_disconnect(void *conn) {
	struct lmdb_conn *c = conn;
	if (c->view)
		mdb_txn_abort(c->view);
	free(c);
}

static int lmdb_begin_view(struct lmdb_conn *c, struct outcome *o) {
	if (c->viewing)
		return 0;
	int e = c->view ? mdb_txn_renew(c->view) : mdb_txn_begin(c->db->env, NULL, MDB_RDONLY, &c->view);
	if (e)
		return lmdb_failed(o->message, "begin to read", e);
	c->viewing = 1;
	return 0;
}

static void lmdb_end_reads(void *conn) {
	struct lmdb_conn *c = conn;
	if (c->viewing)
		mdb_txn_reset(c->view);
	c->viewing = 0;
}

static int lmdb_get(void *conn, const void *key, size_t key_len, struct outcome *o, int fetch) {
	struct lmdb_conn *c = conn;
	MDB_val k = {key_len, (void *)key}, v;
	if (lmdb_begin_view(c, o))
		return -1;
	int e = mdb_get(c->view, c->db->dbi, &k, &v);
	if (e == MDB_NOTFOUND) {
		out_missing(o, fetch);
		return 0;
	}
	if (e)
		return lmdb_failed(o->message, "get", e);
	out_found(o, v.mv_data, v.mv_size, fetch);
	return 0;
}

static int lmdb_put(void *conn, const void *key, size_t key_len, const void *value, size_t value_len, struct outcome *o) {
	struct lmdb_conn *c = conn;
	MDB_val k = {key_len, (void *)key}, v = {value_len, (void *)value};
	int e = c->write ? 0 : mdb_txn_begin(c->db->env, NULL, 0, &c->write);
	if (!e)
		e = mdb_put(c->write, c->db->dbi, &k, &v, lmdb_appending);
	return e ? lmdb_failed(o->message, "put", e) : 0;
}

static int lmdb_commit(void *conn, struct outcome *o) {
	struct lmdb_conn *c = conn;
	int e = mdb_txn_commit(c->write);
	c->write = NULL;
	return e ? lmdb_failed(o->message, "commit", e) : 0;
}

static int lmdb_scan(void *conn, const void *from, size_t from_len, size_t limit, struct outcome *o) {
	struct lmdb_conn *c = conn;
	MDB_cursor *cursor;
	MDB_val k = {from_len, (void *)from}, v;
	size_t n = 0;
	if (lmdb_begin_view(c, o))
		return -1;
	int e = mdb_cursor_open(c->view, c->db->dbi, &cursor);
	if (e)
		return lmdb_failed(o->message, "scan", e);
	e = mdb_cursor_get(cursor, &k, &v, from_len ? MDB_SET_RANGE : MDB_FIRST);
	while (!e) {
		out_touch(o, v.mv_data, v.mv_size);
		if (++n == limit)
			break;
		e = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
	}
	mdb_cursor_close(cursor);
	lmdb_end_reads(c);
	o->scanned += n;
	return e && e != MDB_NOTFOUND ? lmdb_failed(o->message, "scan", e) : 0;
}

PACK(lmdb)

static void *lmdb_append_open(const char *dir, int durable, int clients, uint64_t cache, char *message) {
	lmdb_appending = MDB_APPEND;
	return lmdb_open(dir, durable, clients, cache, message);
}

static const struct cstore *lmdb_append_api(void) {
	static const struct cstore api = {lmdb_append_open, lmdb_sync, lmdb_close, lmdb_connect, lmdb_disconnect, lmdb_run};
	return &api;
}
*/
import "C"

func init() {
	registerC("lmdb", "liblmdb0", "32 GiB mapped, no thread-local readers; NOSYNC where commits need no sync", C.lmdb_api())
	registerC("lmdb-append", "liblmdb0", "as lmdb, with MDB_APPEND, for records in the order of their keys", C.lmdb_append_api())
	engines["lmdb-append"].Variant = true
}
