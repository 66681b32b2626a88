//go:build !linux

package vfs

import "errors"

func inMemory(string) (File, error) { return nil, errors.ErrUnsupported }
