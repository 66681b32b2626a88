//go:build !unix

package dbm

import "testing"

func touchUnmapped(t *testing.T) { t.Skip("needs a mapping without access") }
