//go:build cstores

package main

/*
#cgo LDFLAGS: -lleveldb
#include <leveldb/c.h>
#include "pack.h"

struct level {
	leveldb_t *db;
	leveldb_options_t *options;
	leveldb_cache_t *cache;
	leveldb_filterpolicy_t *filter;
	leveldb_writeoptions_t *write, *write_synced;
	leveldb_readoptions_t *read;
};
struct level_conn { struct level *db; leveldb_writebatch_t *batch; };

static int level_failed(char *message, const char *what, char *why) {
	out_failed(message, what, why);
	leveldb_free(why);
	return -1;
}

static void *level_open(const char *dir, int durable, int clients, uint64_t cache, char *message) {
	struct level *s = calloc(1, sizeof *s);
	char *e = NULL;
	s->options = leveldb_options_create();
	s->cache = leveldb_cache_create_lru(cache);
	s->filter = leveldb_filterpolicy_create_bloom(10);
	leveldb_options_set_create_if_missing(s->options, 1);
	leveldb_options_set_cache(s->options, s->cache);
	leveldb_options_set_filter_policy(s->options, s->filter);
	leveldb_options_set_write_buffer_size(s->options, 64 << 20);
	s->write = leveldb_writeoptions_create();
	leveldb_writeoptions_set_sync(s->write, durable);
	s->write_synced = leveldb_writeoptions_create();
	leveldb_writeoptions_set_sync(s->write_synced, 1);
	s->read = leveldb_readoptions_create();
	s->db = leveldb_open(s->options, dir, &e);
	if (e) {
		level_failed(message, "open", e);
		return NULL;
	}
	return s;
}

static int level_sync(void *store, char *message) {
	struct level *s = store;
	char *e = NULL;
	leveldb_delete(s->db, s->write_synced, "no such key", 11, &e);
	return e ? level_failed(message, "sync", e) : 0;
}

static int level_close(void *store, char *message) {
	struct level *s = store;
	leveldb_close(s->db);
	leveldb_options_destroy(s->options);
	leveldb_cache_destroy(s->cache);
	leveldb_filterpolicy_destroy(s->filter);
	leveldb_writeoptions_destroy(s->write);
	leveldb_writeoptions_destroy(s->write_synced);
	leveldb_readoptions_destroy(s->read);
	free(s);
	return 0;
}

static void *level_connect(void *store) {
	struct level_conn *c = calloc(1, sizeof *c);
	c->db = store;
	c->batch = leveldb_writebatch_create();
	return c;
}

static void level_disconnect(void *conn) {
	leveldb_writebatch_destroy(((struct level_conn *)conn)->batch);
	free(conn);
}

static void level_end_reads(void *conn) {}

static int level_get(void *conn, const void *key, size_t key_len, struct outcome *o, int fetch) {
	struct level *s = ((struct level_conn *)conn)->db;
	char *e = NULL;
	size_t len;
	char *value = leveldb_get(s->db, s->read, key, key_len, &len, &e);
	if (e)
		return level_failed(o->message, "get", e);
	if (value)
		out_found(o, value, len, fetch);
	else
		out_missing(o, fetch);
	leveldb_free(value);
	return 0;
}

static int level_put(void *conn, const void *key, size_t key_len, const void *value, size_t value_len, struct outcome *o) {
	leveldb_writebatch_put(((struct level_conn *)conn)->batch, key, key_len, value, value_len);
	return 0;
}

static int level_commit(void *conn, struct outcome *o) {
	struct level_conn *c = conn;
	char *e = NULL;
	leveldb_write(c->db->db, c->db->write, c->batch, &e);
	leveldb_writebatch_clear(c->batch);
	return e ? level_failed(o->message, "commit", e) : 0;
}

static int level_scan(void *conn, const void *from, size_t from_len, size_t limit, struct outcome *o) {
	struct level *s = ((struct level_conn *)conn)->db;
	leveldb_iterator_t *it = leveldb_create_iterator(s->db, s->read);
	size_t n = 0, len;
	char *e = NULL;
	for (leveldb_iter_seek(it, from, from_len); leveldb_iter_valid(it); leveldb_iter_next(it)) {
		const char *value = leveldb_iter_value(it, &len);
		out_touch(o, value, len);
		if (++n == limit)
			break;
	}
	o->scanned += n;
	leveldb_iter_get_error(it, &e);
	leveldb_iter_destroy(it);
	return e ? level_failed(o->message, "scan", e) : 0;
}

PACK(level)
*/
import "C"

func init() {
	registerC("leveldb", "libleveldb1d", "cache 1 GiB, write buffer 64 MiB, bloom filters of 10 bits", C.level_api())
}
