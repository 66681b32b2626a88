//go:build !windows

package logstore

import "syscall"

var errQuota error = syscall.EDQUOT
