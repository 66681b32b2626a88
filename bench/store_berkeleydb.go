//go:build cstores

package main

/*
#cgo LDFLAGS: -ldb-5.3
#include <db.h>
#include "pack.h"

struct berkeley { DB_ENV *env; DB *db; };
struct berkeley_put { const void *key, *value; uint32_t key_len, value_len; };
struct berkeley_conn {
	struct berkeley *s;
	struct berkeley_put *puts; // of the transaction: kept so that it can run again after a deadlock
	size_t n, room, commits;
	void *value;
	uint32_t value_room;
};

static int berkeley_failed(char *message, const char *what, int code) { return out_failed(message, what, db_strerror(code)); }

static void *berkeley_open(const char *dir, int durable, int clients, uint64_t cache, char *message) {
	struct berkeley *s = calloc(1, sizeof *s);
	int e;
	if ((e = db_env_create(&s->env, 0)) || (e = s->env->set_cachesize(s->env, (uint32_t)(cache >> 30), (uint32_t)(cache & 0x3fffffff), 1)) ||
	    (e = s->env->set_lg_bsize(s->env, 4 << 20)) || (e = s->env->set_lg_max(s->env, 64 << 20)) ||
	    (e = s->env->set_lk_max_locks(s->env, 100000)) || (e = s->env->set_lk_max_objects(s->env, 100000)) ||
	    (e = s->env->set_lk_detect(s->env, DB_LOCK_DEFAULT)) ||
	    (e = s->env->log_set_config(s->env, DB_LOG_AUTO_REMOVE, 1)) ||
	    (e = s->env->set_flags(s->env, DB_TXN_NOSYNC, !durable)) ||
	    (e = s->env->open(s->env, dir, DB_CREATE | DB_PRIVATE | DB_THREAD | DB_RECOVER | DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK | DB_INIT_MPOOL, 0600)) ||
	    (e = db_create(&s->db, s->env, 0)) ||
	    (e = s->db->open(s->db, NULL, "b.db", NULL, DB_BTREE, DB_CREATE | DB_THREAD | DB_AUTO_COMMIT, 0600))) {
		berkeley_failed(message, "open", e);
		return NULL;
	}
	return s;
}

static int berkeley_sync(void *store, char *message) {
	struct berkeley *s = store;
	int e = s->env->txn_checkpoint(s->env, 0, 0, DB_FORCE);
	return e ? berkeley_failed(message, "sync", e) : 0;
}

static int berkeley_close(void *store, char *message) {
	struct berkeley *s = store;
	int e = berkeley_sync(s, message), d = s->db->close(s->db, 0), f = s->env->close(s->env, 0);
	free(s);
	if (e)
		return e;
	return d || f ? berkeley_failed(message, "close", d ? d : f) : 0;
}

static void *berkeley_connect(void *store) {
	struct berkeley_conn *c = calloc(1, sizeof *c);
	c->s = store;
	c->value_room = 1 << 20;
	c->value = malloc(c->value_room);
	return c;
}

static void berkeley_disconnect(void *conn) {
	struct berkeley_conn *c = conn;
	free(c->puts);
	free(c->value);
	free(c);
}

static void berkeley_end_reads(void *conn) {}

static int berkeley_get(void *conn, const void *key, size_t key_len, struct outcome *o, int fetch) {
	struct berkeley_conn *c = conn;
	DBT k = {0}, v = {0};
	k.data = (void *)key;
	k.size = (uint32_t)key_len;
	v.data = c->value;
	v.ulen = c->value_room;
	v.flags = DB_DBT_USERMEM;
	int e;
	do
		e = c->s->db->get(c->s->db, NULL, &k, &v, 0);
	while (e == DB_LOCK_DEADLOCK);
	if (e == DB_NOTFOUND) {
		out_missing(o, fetch);
		return 0;
	}
	if (e)
		return berkeley_failed(o->message, "get", e);
	out_found(o, v.data, v.size, fetch);
	return 0;
}

static int berkeley_put(void *conn, const void *key, size_t key_len, const void *value, size_t value_len, struct outcome *o) {
	struct berkeley_conn *c = conn;
	if (c->n == c->room) {
		c->room = c->room ? 2 * c->room : 16;
		c->puts = realloc(c->puts, c->room * sizeof *c->puts);
	}
	c->puts[c->n++] = (struct berkeley_put){key, value, (uint32_t)key_len, (uint32_t)value_len};
	return 0;
}

static int berkeley_try(struct berkeley_conn *c) {
	DB_TXN *txn;
	int e = c->s->env->txn_begin(c->s->env, NULL, &txn, 0);
	if (e)
		return e;
	for (size_t i = 0; i < c->n; i++) {
		DBT k = {0}, v = {0};
		k.data = (void *)c->puts[i].key;
		k.size = c->puts[i].key_len;
		v.data = (void *)c->puts[i].value;
		v.size = c->puts[i].value_len;
		if ((e = c->s->db->put(c->s->db, txn, &k, &v, 0))) {
			txn->abort(txn);
			return e;
		}
	}
	return txn->commit(txn, 0);
}

static int berkeley_commit(void *conn, struct outcome *o) {
	struct berkeley_conn *c = conn;
	int e;
	do
		e = berkeley_try(c);
	while (e == DB_LOCK_DEADLOCK || e == DB_LOCK_NOTGRANTED);
	c->n = 0;
	// A checkpoint for every 64 MiB of log.
	if (!e && ++c->commits % 1000 == 0)
		e = c->s->env->txn_checkpoint(c->s->env, 64 << 10, 0, 0);
	return e ? berkeley_failed(o->message, "commit", e) : 0;
}

static int berkeley_scan(void *conn, const void *from, size_t from_len, size_t limit, struct outcome *o) {
	struct berkeley_conn *c = conn;
	DBC *cursor;
	DBT k = {0}, v = {0}, pack = {0};
	size_t n = 0;
	int e = c->s->db->cursor(c->s->db, NULL, &cursor, DB_READ_COMMITTED);
	if (e)
		return berkeley_failed(o->message, "scan", e);
	k.flags = DB_DBT_REALLOC;
	k.size = (uint32_t)from_len;
	k.data = malloc(from_len + 1);
	memcpy(k.data, from, from_len);
	// Many records at a time, as its manual advises.
	v.data = c->value;
	v.ulen = limit < 1000 ? 64 << 10 : c->value_room;
	v.flags = DB_DBT_USERMEM;
	e = cursor->get(cursor, &k, &v, (from_len ? DB_SET_RANGE : DB_FIRST) | DB_MULTIPLE_KEY);
	while (!e && n < limit) {
		void *at, *key, *value;
		size_t key_len, value_len;
		DB_MULTIPLE_INIT(at, &v);
		for (;;) {
			DB_MULTIPLE_KEY_NEXT(at, &v, key, key_len, value, value_len);
			if (!at)
				break;
			out_touch(o, value, value_len);
			if (++n == limit)
				break;
		}
		if (n < limit)
			e = cursor->get(cursor, &k, &v, DB_NEXT | DB_MULTIPLE_KEY);
	}
	cursor->close(cursor);
	free(k.data);
	o->scanned += n;
	return e && e != DB_NOTFOUND ? berkeley_failed(o->message, "scan", e) : 0;
}

PACK(berkeley)
*/
import "C"

func init() {
	registerC("berkeleydb", "libdb5.3", "B-tree, cache 1 GiB, log buffer 4 MiB, a checkpoint for every 64 MiB of log; TXN_NOSYNC where commits need no sync", C.berkeley_api())
}
