//go:build deps

// Package flashdbm pins the module's dependencies until the code imports them.
package flashdbm

import (
	_ "github.com/edsrzf/mmap-go"
	_ "github.com/pkg/profile"
	_ "github.com/stretchr/testify/require"
	_ "golang.org/x/sys/unix"
)
