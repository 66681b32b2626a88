//go:build cstores

package main

/*
#cgo LDFLAGS: -lkyotocabinet
#include <kclangc.h>
#include "pack.h"

struct kyoto { KCDB *db; int durable; };
struct kyoto_conn { struct kyoto *s; int writing; char *value; };
#define KYOTO_VALUE (1 << 20)

static int kyoto_failed(KCDB *db, char *message, const char *what) { return out_failed(message, what, kcdbemsg(db)); }

static void *kyoto_open(const char *dir, int durable, int clients, uint64_t cache, char *message) {
	struct kyoto *s = calloc(1, sizeof *s);
	char path[4096];
	s->db = kcdbnew();
	s->durable = durable;
	snprintf(path, sizeof path, "%s/b.kct#opts=l#bnum=200000#msiz=%llu#pccap=%llu", dir, (unsigned long long)256 << 20, (unsigned long long)cache);
	if (!kcdbopen(s->db, path, KCOWRITER | KCOCREATE)) {
		kyoto_failed(s->db, message, "open");
		return NULL;
	}
	return s;
}

static int kyoto_sync(void *store, char *message) {
	struct kyoto *s = store;
	return kcdbsync(s->db, 1, NULL, NULL) ? 0 : kyoto_failed(s->db, message, "sync");
}

static int kyoto_close(void *store, char *message) {
	struct kyoto *s = store;
	int failed = kcdbclose(s->db) ? 0 : kyoto_failed(s->db, message, "close");
	kcdbdel(s->db);
	free(s);
	return failed;
}

static void *kyoto_connect(void *store) {
	struct kyoto_conn *c = calloc(1, sizeof *c);
	c->s = store;
	c->value = malloc(KYOTO_VALUE);
	return c;
}

static void kyoto_disconnect(void *conn) {
	free(((struct kyoto_conn *)conn)->value);
	free(conn);
}

static void kyoto_end_reads(void *conn) {}

static int kyoto_get(void *conn, const void *key, size_t key_len, struct outcome *o, int fetch) {
	struct kyoto_conn *c = conn;
	int32_t n = kcdbgetbuf(c->s->db, key, key_len, c->value, KYOTO_VALUE);
	if (n >= 0)
		out_found(o, c->value, (size_t)n, fetch);
	else if (kcdbecode(c->s->db) == KCENOREC)
		out_missing(o, fetch);
	else
		return kyoto_failed(c->s->db, o->message, "get");
	return 0;
}

static int kyoto_put(void *conn, const void *key, size_t key_len, const void *value, size_t value_len, struct outcome *o) {
	struct kyoto_conn *c = conn;
	if (!c->writing && !kcdbbegintran(c->s->db, c->s->durable))
		return kyoto_failed(c->s->db, o->message, "begin");
	c->writing = 1;
	return kcdbset(c->s->db, key, key_len, value, value_len) ? 0 : kyoto_failed(c->s->db, o->message, "put");
}

static int kyoto_commit(void *conn, struct outcome *o) {
	struct kyoto_conn *c = conn;
	c->writing = 0;
	return kcdbendtran(c->s->db, 1) ? 0 : kyoto_failed(c->s->db, o->message, "commit");
}

static const char *kyoto_visit(const char *key, size_t key_len, const char *value, size_t value_len, size_t *size, void *o) {
	out_touch(o, value, value_len);
	return KCVISNOP;
}

static int kyoto_scan(void *conn, const void *from, size_t from_len, size_t limit, struct outcome *o) {
	struct kyoto_conn *c = conn;
	KCCUR *cursor = kcdbcursor(c->s->db);
	size_t n = 0;
	if (from_len ? kccurjumpkey(cursor, from, from_len) : kccurjump(cursor))
		while (n < limit && kccuraccept(cursor, kyoto_visit, o, 0, 1))
			n++;
	int failed = n < limit && kccurecode(cursor) != KCENOREC;
	if (failed)
		out_failed(o->message, "scan", kccuremsg(cursor));
	kccurdel(cursor);
	o->scanned += n;
	return failed ? -1 : 0;
}

PACK(kyoto)
*/
import "C"

func init() {
	registerC("kyotocabinet", "libkyotocabinet16v5", "TreeDB, page cache 1 GiB, 256 MiB mapped; hard transactions where commits are durable, else soft ones", C.kyoto_api())
}
