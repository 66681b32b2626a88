//go:build verbs

#define _GNU_SOURCE
#include "link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define VERSION FI_VERSION(1, 17)

static struct fi_info *hints(const char *provider) {
	struct fi_info *h = fi_allocinfo();
	if (!h) return NULL;
	h->ep_attr->type = FI_EP_MSG;
	h->caps = FI_MSG | FI_RMA;
	h->addr_format = FI_FORMAT_UNSPEC;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	h->domain_attr->threading = FI_THREAD_SAFE;
	h->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_WAW;
	h->rx_attr->msg_order = h->tx_attr->msg_order;
	h->tx_attr->inject_size = sizeof(((vf_wr *)0)->data);
	h->fabric_attr->prov_name = strdup(provider);
	return h;
}

// With its cache libfabric registers memory once for all rights, and goes on when a registration is closed: there would be neither rights nor a fence.
// It looks at the variable when it is used first in the process. What counts is that two registrations of the same memory have two keys.
static int cached(vf_domain *d) {
	static uint8_t page[4096] __attribute__((aligned(4096)));
	struct fid_mr *mr[2] = {NULL, NULL};
	int r = fi_mr_reg(d->domain, page, sizeof page, FI_SEND, 0, 1, 0, &mr[0], NULL);
	if (!r) r = fi_mr_reg(d->domain, page, sizeof page, FI_SEND | FI_REMOTE_READ, 0, 2, 0, &mr[1], NULL);
	if (!r && fi_mr_key(mr[0]) == fi_mr_key(mr[1])) r = -FI_EBUSY;
	for (int i = 0; i < 2; i++)
		if (mr[i]) fi_close(&mr[i]->fid);
	return r;
}

int vf_open(const char *provider, const char *node, vf_domain *d) {
	setenv("FI_MR_CACHE_MONITOR", "disabled", 1);
	struct fi_info *h = hints(provider);
	if (!h) return -FI_ENOMEM;
	memset(d, 0, sizeof *d);
	int r = fi_getinfo(VERSION, *node ? node : NULL, NULL, *node ? FI_SOURCE : 0, h, &d->info);
	fi_freeinfo(h);
	if (r) return r;
	struct fi_eq_attr ea = {.wait_obj = FI_WAIT_FD};
	if ((r = fi_fabric(d->info->fabric_attr, &d->fabric, NULL)) || (r = fi_domain(d->fabric, d->info, &d->domain, NULL)) ||
	    (r = fi_eq_open(d->fabric, &ea, &d->eq, NULL)) || (r = fi_control(&d->eq->fid, FI_GETWAIT, &d->eq_fd)) || (r = cached(d))) {
		vf_close(d);
		return r;
	}
	d->virtual = (d->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
	d->max_bytes = d->info->ep_attr->max_msg_size;
	d->max_sends = d->info->tx_attr->size;
	d->max_recvs = d->info->rx_attr->size;
	return 0;
}

void vf_close(vf_domain *d) {
	if (d->eq) fi_close(&d->eq->fid);
	if (d->domain) fi_close(&d->domain->fid);
	if (d->fabric) fi_close(&d->fabric->fid);
	if (d->info) fi_freeinfo(d->info);
	memset(d, 0, sizeof *d);
}

int vf_register(vf_domain *d, void *p, size_t n, int read, int write, int own, uint64_t wanted, struct fid_mr **mr, void **desc, uint64_t *key) {
	uint64_t access = (own ? FI_READ | FI_WRITE | FI_SEND | FI_RECV : 0) | (read ? FI_REMOTE_READ : 0) | (write ? FI_REMOTE_WRITE : 0);
	int r = fi_mr_reg(d->domain, p, n, access, 0, wanted, 0, mr, NULL);
	if (r) return r;
	*desc = fi_mr_desc(*mr);
	*key = fi_mr_key(*mr);
	return 0;
}

int vf_unregister(struct fid_mr *mr) { return fi_close(&mr->fid); }

int vf_queue(vf_domain *d, size_t *size, struct fid_cq **cq, int *fd) {
	struct fi_cq_attr a = {.size = *size, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
	int r = fi_cq_open(d->domain, &a, cq, NULL);
	for (; r == -FI_EINVAL && a.size > 1024; r = fi_cq_open(d->domain, &a, cq, NULL)) a.size /= 2; // libfabric does not tell what the device can
	if (r) return r;
	*size = a.size;
	if ((r = fi_control(&(*cq)->fid, FI_GETWAIT, fd))) fi_close(&(*cq)->fid);
	return r;
}

int vf_queue_close(struct fid_cq *cq) { return fi_close(&cq->fid); }

int vf_poll(struct fid_cq *cq, vf_wc *wc, int n) {
	struct fi_cq_msg_entry e[64];
	ssize_t r = fi_cq_read(cq, e, n > 64 ? 64 : n);
	if (r == -FI_EAGAIN) return 0;
	if (r == -FI_EAVAIL) {
		struct fi_cq_err_entry x = {0};
		r = fi_cq_readerr(cq, &x, 0);
		if (r == -FI_EAGAIN) return 0;
		if (r < 0) return (int)r;
		wc[0] = (vf_wc){.context = (uint64_t)(uintptr_t)x.op_context, .error = x.err ? x.err : FI_EIO, .provider = x.prov_errno};
		return 1;
	}
	for (ssize_t i = 0; i < r; i++) wc[i] = (vf_wc){.context = (uint64_t)(uintptr_t)e[i].op_context, .len = e[i].len};
	return (int)r;
}

int vf_arm(vf_domain *d, struct fid_cq *cq) {
	struct fid *f = &cq->fid;
	int r = fi_trywait(d->fabric, &f, 1);
	return r == -FI_EAGAIN ? 0 : r ? r : 1;
}

int vf_listen(vf_domain *d, const char *node, struct fid_pep **pep, uint16_t *port) {
	struct fi_info *h = hints(d->info->fabric_attr->prov_name), *info;
	if (!h) return -FI_ENOMEM;
	int r = fi_getinfo(VERSION, node, "0", FI_SOURCE, h, &info);
	fi_freeinfo(h);
	if (r) return r;
	r = fi_passive_ep(d->fabric, info, pep, NULL);
	fi_freeinfo(info);
	if (r) return r;
	struct sockaddr_storage a;
	size_t n = sizeof a;
	if ((r = fi_pep_bind(*pep, &d->eq->fid, 0)) || (r = fi_listen(*pep)) || (r = fi_getname(&(*pep)->fid, &a, &n))) {
		fi_close(&(*pep)->fid);
		return r;
	}
	*port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
	return 0;
}

int vf_listen_close(struct fid_pep *pep) { return fi_close(&pep->fid); }

static int endpoint(vf_domain *d, struct fi_info *info, uint64_t id, struct fid_cq *send, struct fid_cq *recv, size_t sends, size_t recvs, struct fid_ep **ep) {
	info->tx_attr->size = sends;
	info->rx_attr->size = recvs;
	info->tx_attr->iov_limit = info->rx_attr->iov_limit = info->tx_attr->rma_iov_limit = 1;
	info->tx_attr->inject_size = sizeof(((vf_wr *)0)->data);
	int r = fi_endpoint(d->domain, info, ep, (void *)(uintptr_t)id);
	if (r) return r;
	r = fi_ep_bind(*ep, &d->eq->fid, 0);
	if (!r) r = fi_ep_bind(*ep, &send->fid, send == recv ? FI_TRANSMIT | FI_RECV : FI_TRANSMIT);
	if (!r && send != recv) r = fi_ep_bind(*ep, &recv->fid, FI_RECV);
	if (!r) r = fi_enable(*ep);
	if (r) fi_close(&(*ep)->fid);
	return r;
}

int vf_connect(vf_domain *d, const char *node, const char *port, uint64_t token, uint64_t id, struct fid_cq *send, struct fid_cq *recv, size_t sends, size_t recvs, struct fid_ep **ep) {
	struct fi_info *h = hints(d->info->fabric_attr->prov_name), *info;
	if (!h) return -FI_ENOMEM;
	h->domain_attr->name = strdup(d->info->domain_attr->name);
	int r = fi_getinfo(VERSION, node, port, 0, h, &info);
	fi_freeinfo(h);
	if (r) return r;
	r = endpoint(d, info, id, send, recv, sends, recvs, ep);
	if (!r && (r = fi_connect(*ep, info->dest_addr, &token, sizeof token))) fi_close(&(*ep)->fid);
	fi_freeinfo(info);
	return r;
}

int vf_accept(vf_domain *d, struct fi_info *info, uint64_t id, struct fid_cq *send, struct fid_cq *recv, size_t sends, size_t recvs, struct fid_ep **ep) {
	int r = endpoint(d, info, id, send, recv, sends, recvs, ep);
	if (!r && (r = fi_accept(*ep, NULL, 0))) fi_close(&(*ep)->fid);
	fi_freeinfo(info);
	return r;
}

void vf_reject(struct fid_pep *pep, struct fi_info *info, int open) {
	if (open) fi_reject(pep, info->handle, NULL, 0);
	fi_freeinfo(info);
}

int vf_endpoint_close(struct fid_ep *ep) { return fi_close(&ep->fid); }

int vf_event_read(vf_domain *d, vf_event *e) {
	union {
		struct fi_eq_cm_entry cm;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + 256];
	} u;
	memset(e, 0, sizeof *e);
	uint32_t type;
	ssize_t n = fi_eq_read(d->eq, &type, &u, sizeof u, 0);
	if (n == -FI_EAGAIN) return 0;
	if (n == -FI_EAVAIL) {
		struct fi_eq_err_entry x = {0};
		n = fi_eq_readerr(d->eq, &x, 0);
		if (n == -FI_EAGAIN) return 0;
		if (n < 0) return (int)n;
		e->type = VF_FAILED;
		e->error = x.err;
		e->id = x.fid ? (uint64_t)(uintptr_t)x.fid->context : 0;
		return 1;
	}
	if (n < 0) return (int)n;
	switch (type) {
	case FI_CONNREQ:
		e->type = VF_REQUESTED;
		e->info = u.cm.info;
		e->pep = (struct fid_pep *)u.cm.fid;
		if (n >= (ssize_t)(sizeof u.cm + sizeof e->token)) memcpy(&e->token, u.cm.data, sizeof e->token);
		return 1;
	case FI_CONNECTED:
	case FI_SHUTDOWN:
		e->type = type == FI_CONNECTED ? VF_CONNECTED : VF_ENDED;
		e->id = (uint64_t)(uintptr_t)u.cm.fid->context;
		return 1;
	}
	return 1; // nothing that this provider asks for
}

static ssize_t post(struct fid_ep *ep, vf_wr *w) {
	struct iovec iov = {w->local ? w->local : w->data, w->len};
	struct fi_rma_iov to = {.addr = w->remote, .len = w->len, .key = w->key};
	void *context = (void *)(uintptr_t)w->context;
	uint64_t flags = FI_COMPLETION | FI_DELIVERY_COMPLETE | (w->inlined ? FI_INJECT : 0);
	if (w->op == VF_READ || w->op == VF_WRITE) {
		struct fi_msg_rma m = {.msg_iov = &iov, .desc = w->desc ? &w->desc : NULL, .iov_count = 1, .rma_iov = &to, .rma_iov_count = 1, .context = context};
		return w->op == VF_READ ? fi_readmsg(ep, &m, FI_COMPLETION) : fi_writemsg(ep, &m, flags);
	}
	struct fi_msg m = {.msg_iov = &iov, .desc = w->desc ? &w->desc : NULL, .iov_count = w->len > 0, .context = context};
	return w->op == VF_SEND ? fi_sendmsg(ep, &m, flags) : fi_recvmsg(ep, &m, FI_COMPLETION);
}

int vf_post(struct fid_ep *ep, vf_wr *w, int n) {
	for (int i = 0; i < n; i++) {
		ssize_t r = post(ep, w + i);
		if (r == -FI_EAGAIN) return i;
		if (r) return i ? i : (int)r;
	}
	return n;
}
