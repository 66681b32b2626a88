//go:build verbs

package verbs

import (
	"syscall"

	"flashdbm/servers/fabric"
)

// The statuses of failed work completions: enum ibv_wc_status of libibverbs, which libfabric passes on.
const (
	wcLocalLength   = 1
	wcLocalRequest  = 2 // rdma_rxe reports this for a Recv that is too short
	wcLocalAccess   = 4 // ibv_wc_status calls it IBV_WC_LOC_PROT_ERR
	wcFlushed       = 5
	wcRemoteRequest = 9
	wcRemoteAccess  = 10
	wcRemoteRecv    = 11 // and then reports this for the Send
	wcRetries       = 12
	wcReceiverWaits = 13
)

// cause returns why an operation has failed, nil if it was flushed after another one. err is libfabric's error,
// provider the error of libfabric's provider.
func cause(err, provider int) error {
	switch provider {
	case wcFlushed:
		return nil
	case wcLocalLength, wcLocalRequest, wcLocalAccess, wcRemoteRequest, wcRemoteAccess, wcRemoteRecv:
		return fabric.ErrAccess
	case wcRetries, wcReceiverWaits:
		return fabric.ErrTimeout
	}
	switch syscall.Errno(err) {
	case syscall.ECANCELED:
		return nil
	case syscall.EACCES, syscall.EINVAL, syscall.EMSGSIZE:
		return fabric.ErrAccess
	}
	return fabric.ErrPeer
}
