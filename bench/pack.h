/* How stores in C take part: cstore.go calls them through struct cstore, and PACK defines the function that runs a pack of operations
 * (see ops.go for its layout) on what a store provides for one thread at a time:
 *
 *   int  S_get(void *conn, const void *key, size_t key_len, struct outcome *, int fetch)   calls out_found or out_missing
 *   void S_end_reads(void *conn)                        comes after a run of gets
 *   int  S_put(void *conn, const void *key, size_t key_len, const void *value, size_t value_len, struct outcome *)
 *   int  S_commit(void *conn, struct outcome *)
 *   int  S_scan(void *conn, const void *from, size_t from_len, size_t limit, struct outcome *)
 *
 * Those that return int return 0, or -1 with a message in the outcome. Keys and values that were put stay where they are until the commit.
 */
#ifndef PACK_H
#define PACK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 256

struct outcome {
	uint64_t found, missing, scanned, sum;
	uint8_t *values; /* of fetches, by malloc: length 4, value */
	size_t values_len, values_cap;
	char message[MESSAGE_BYTES];
};

struct cstore {
	void *(*open)(const char *dir, int durable, int clients, uint64_t cache_bytes, char *message); /* NULL: see message */
	int (*sync)(void *store, char *message);
	int (*close)(void *store, char *message);
	void *(*connect)(void *store);
	void (*disconnect)(void *conn);
	int (*run)(void *conn, const uint8_t *ops, size_t len, struct outcome *out);
};

static inline void out_append(struct outcome *o, const void *from, size_t len) {
	if (o->values_len + len > o->values_cap) {
		o->values_cap = 2 * (o->values_len + len);
		o->values = realloc(o->values, o->values_cap);
	}
	memcpy(o->values + o->values_len, from, len);
	o->values_len += len;
}

static inline void out_touch(struct outcome *o, const void *value, size_t len) {
	o->sum += len;
	if (len > 0)
		o->sum += ((const uint8_t *)value)[len - 1];
}

static inline void out_found(struct outcome *o, const void *value, size_t len, int fetch) {
	o->found++;
	if (!fetch) {
		out_touch(o, value, len);
		return;
	}
	uint32_t n = (uint32_t)len;
	out_append(o, &n, 4);
	out_append(o, value, len);
}

static inline void out_missing(struct outcome *o, int fetch) {
	uint32_t absent = UINT32_MAX;
	o->missing++;
	if (fetch)
		out_append(o, &absent, 4);
}

static inline int out_failed(char *message, const char *what, const char *why) {
	snprintf(message, MESSAGE_BYTES, "%s: %s", what, why ? why : "failed");
	return -1;
}

#define PACK(S)                                                                                                       \
	static int S##_run(void *conn, const uint8_t *b, size_t len, struct outcome *o) {                                 \
		const uint8_t *end = b + len;                                                                                 \
		int reading = 0;                                                                                              \
		while (b < end) {                                                                                             \
			uint8_t code = b[0];                                                                                      \
			uint32_t key_len, value_len;                                                                              \
			memcpy(&key_len, b + 1, 4);                                                                               \
			memcpy(&value_len, b + 5, 4);                                                                             \
			const uint8_t *key = b + 9;                                                                               \
			b = key + key_len;                                                                                        \
			int get = code == 'G' || code == 'V', failed = 0;                                                         \
			if (reading && !get)                                                                                      \
				S##_end_reads(conn);                                                                                  \
			reading = get;                                                                                            \
			switch (code) {                                                                                           \
			case 'G':                                                                                                 \
			case 'V':                                                                                                 \
				failed = S##_get(conn, key, key_len, o, code == 'V');                                                 \
				break;                                                                                                \
			case 'P':                                                                                                 \
				failed = S##_put(conn, key, key_len, b, value_len, o);                                                \
				b += value_len;                                                                                       \
				break;                                                                                                \
			case 'C':                                                                                                 \
				failed = S##_commit(conn, o);                                                                         \
				break;                                                                                                \
			case 'S':                                                                                                 \
				failed = S##_scan(conn, key, key_len, value_len, o);                                                  \
				break;                                                                                                \
			default:                                                                                                  \
				failed = out_failed(o->message, "pack", "unknown operation");                                         \
			}                                                                                                         \
			if (failed)                                                                                               \
				return failed;                                                                                        \
		}                                                                                                             \
		if (reading)                                                                                                  \
			S##_end_reads(conn);                                                                                      \
		return 0;                                                                                                     \
	}                                                                                                                 \
	static const struct cstore *S##_api(void) {                                                                       \
		static const struct cstore api = {S##_open, S##_sync, S##_close, S##_connect, S##_disconnect, S##_run};       \
		return &api;                                                                                                  \
	}

#endif
