//go:build verbs

// What package verbs needs of libfabric, in calls that each cross from Go to C once. Functions return 0, or a count, or a negative error of libfabric.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct fi_info;
struct fid_cq;
struct fid_ep;
struct fid_mr;
struct fid_pep;

typedef struct {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	int eq_fd;          // readable when there may be an event
	int virtual;        // places in regions are addresses, not offsets
	uint64_t max_bytes; // of an operation
	uint64_t max_sends, max_recvs;
} vf_domain;

// A work request. Its local memory is data where local is NULL.
typedef struct {
	uint64_t context; // comes back in the completion
	void *local, *desc;
	uint64_t len, remote, key;
	uint32_t op;     // VF_READ to VF_RECV
	uint32_t inlined; // the local memory may be used again when vf_post returns
	uint8_t data[64];
} vf_wr;

enum { VF_READ = 1, VF_WRITE, VF_SEND, VF_RECV }; // as fabric.Op

// A completion.
typedef struct {
	uint64_t context;
	uint64_t len;
	int32_t error;    // of libfabric, positive; 0 for none
	int32_t provider; // the provider's own, of an error
} vf_wc;

// An event of a connection.
typedef struct {
	int32_t type; // VF_REQUESTED and so on
	int32_t error;
	uint64_t id;    // of the endpoint
	uint64_t token; // of VF_REQUESTED
	struct fi_info *info; // of VF_REQUESTED: for vf_accept or vf_reject, which free it
	struct fid_pep *pep;
} vf_event;

enum { VF_NONE, VF_REQUESTED, VF_CONNECTED, VF_ENDED, VF_FAILED };

int vf_open(const char *provider, const char *node, vf_domain *d);
void vf_close(vf_domain *d);

// A registration of memory: for own operations, or for the peers'.
int vf_register(vf_domain *d, void *p, size_t n, int read, int write, int own, uint64_t wanted, struct fid_mr **mr, void **desc, uint64_t *key);
int vf_unregister(struct fid_mr *mr);

// A queue of completions, of the size wanted or, if the device has none so large, a smaller one; and a descriptor that is readable when there may be one, once vf_arm has returned 1.
int vf_queue(vf_domain *d, size_t *size, struct fid_cq **cq, int *fd);
int vf_queue_close(struct fid_cq *cq);
int vf_poll(struct fid_cq *cq, vf_wc *wc, int n);
int vf_arm(vf_domain *d, struct fid_cq *cq);

int vf_listen(vf_domain *d, const char *node, struct fid_pep **pep, uint16_t *port);
int vf_listen_close(struct fid_pep *pep);
int vf_connect(vf_domain *d, const char *node, const char *port, uint64_t token, uint64_t id, struct fid_cq *send, struct fid_cq *recv, size_t sends, size_t recvs, struct fid_ep **ep);
int vf_accept(vf_domain *d, struct fi_info *info, uint64_t id, struct fid_cq *send, struct fid_cq *recv, size_t sends, size_t recvs, struct fid_ep **ep);
void vf_reject(struct fid_pep *pep, struct fi_info *info, int open); // open: the listener still is
int vf_endpoint_close(struct fid_ep *ep);
int vf_event_read(vf_domain *d, vf_event *e);

// Starts work requests in order and returns how many were taken.
int vf_post(struct fid_ep *ep, vf_wr *w, int n);
