//go:build !unix

package dbm

import "time"

var processBegan = time.Now()

// usedTime returns the time since the process began, which is more than its processor time.
func usedTime() time.Duration { return time.Since(processBegan) }
