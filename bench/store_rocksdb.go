//go:build cstores

package main

/*
#cgo LDFLAGS: -lrocksdb
#include <rocksdb/c.h>
#include "pack.h"

struct rocks {
	rocksdb_t *db;
	rocksdb_options_t *options;
	rocksdb_block_based_table_options_t *table;
	rocksdb_cache_t *cache;
	rocksdb_writeoptions_t *write;
	rocksdb_readoptions_t *read;
};
struct rocks_conn { struct rocks *db; rocksdb_writebatch_t *batch; };

static int rocks_failed(char *message, const char *what, char *why) {
	out_failed(message, what, why);
	rocksdb_free(why);
	return -1;
}

static void *rocks_open(const char *dir, int durable, int clients, uint64_t cache, char *message) {
	struct rocks *s = calloc(1, sizeof *s);
	char *e = NULL;
	s->options = rocksdb_options_create();
	rocksdb_options_set_create_if_missing(s->options, 1);
	rocksdb_options_set_write_buffer_size(s->options, 64 << 20);
	rocksdb_options_set_max_write_buffer_number(s->options, 4);
	rocksdb_options_set_max_background_jobs(s->options, 2);
	rocksdb_options_set_info_log_level(s->options, 4);
	s->cache = rocksdb_cache_create_lru(cache);
	s->table = rocksdb_block_based_options_create();
	rocksdb_block_based_options_set_block_cache(s->table, s->cache);
	rocksdb_block_based_options_set_filter_policy(s->table, rocksdb_filterpolicy_create_bloom_full(10));
	rocksdb_options_set_block_based_table_factory(s->options, s->table);
	s->write = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(s->write, durable);
	s->read = rocksdb_readoptions_create();
	s->db = rocksdb_open(s->options, dir, &e);
	if (e) {
		rocks_failed(message, "open", e);
		return NULL;
	}
	return s;
}

static int rocks_sync(void *store, char *message) {
	char *e = NULL;
	rocksdb_flush_wal(((struct rocks *)store)->db, 1, &e);
	return e ? rocks_failed(message, "sync", e) : 0;
}

static int rocks_close(void *store, char *message) {
	struct rocks *s = store;
	int failed = rocks_sync(s, message);
	rocksdb_close(s->db);
	rocksdb_options_destroy(s->options);
	rocksdb_block_based_options_destroy(s->table);
	rocksdb_cache_destroy(s->cache);
	rocksdb_writeoptions_destroy(s->write);
	rocksdb_readoptions_destroy(s->read);
	free(s);
	return failed;
}

static void *rocks_connect(void *store) {
	struct rocks_conn *c = calloc(1, sizeof *c);
	c->db = store;
	c->batch = rocksdb_writebatch_create();
	return c;
}

static void rocks_disconnect(void *conn) {
	rocksdb_writebatch_destroy(((struct rocks_conn *)conn)->batch);
	free(conn);
}

static void rocks_end_reads(void *conn) {}

static int rocks_get(void *conn, const void *key, size_t key_len, struct outcome *o, int fetch) {
	struct rocks *s = ((struct rocks_conn *)conn)->db;
	char *e = NULL;
	rocksdb_pinnableslice_t *slice = rocksdb_get_pinned(s->db, s->read, key, key_len, &e);
	if (e)
		return rocks_failed(o->message, "get", e);
	if (!slice) {
		out_missing(o, fetch);
		return 0;
	}
	size_t len;
	const char *value = rocksdb_pinnableslice_value(slice, &len);
	out_found(o, value, len, fetch);
	rocksdb_pinnableslice_destroy(slice);
	return 0;
}

static int rocks_put(void *conn, const void *key, size_t key_len, const void *value, size_t value_len, struct outcome *o) {
	rocksdb_writebatch_put(((struct rocks_conn *)conn)->batch, key, key_len, value, value_len);
	return 0;
}

static int rocks_commit(void *conn, struct outcome *o) {
	struct rocks_conn *c = conn;
	char *e = NULL;
	rocksdb_write(c->db->db, c->db->write, c->batch, &e);
	rocksdb_writebatch_clear(c->batch);
	return e ? rocks_failed(o->message, "commit", e) : 0;
}

static int rocks_scan(void *conn, const void *from, size_t from_len, size_t limit, struct outcome *o) {
	struct rocks *s = ((struct rocks_conn *)conn)->db;
	rocksdb_iterator_t *it = rocksdb_create_iterator(s->db, s->read);
	size_t n = 0, len;
	char *e = NULL;
	for (rocksdb_iter_seek(it, from, from_len); rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
		const char *value = rocksdb_iter_value(it, &len);
		out_touch(o, value, len);
		if (++n == limit)
			break;
	}
	o->scanned += n;
	rocksdb_iter_get_error(it, &e);
	rocksdb_iter_destroy(it);
	return e ? rocks_failed(o->message, "scan", e) : 0;
}

PACK(rocks)
*/
import "C"

func init() {
	registerC("rocksdb", "librocksdb7.8", "block cache 1 GiB, memtables of 64 MiB, bloom filters of 10 bits, 2 background jobs", C.rocks_api())
}
