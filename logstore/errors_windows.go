package logstore

import "syscall"

var errQuota error = syscall.ENOSPC
