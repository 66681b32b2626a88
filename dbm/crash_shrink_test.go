package dbm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// steps are the numbers of the steps of a script that are run, in order; nil stands for all of them.
type steps []int

func (s steps) has(n int) bool {
	if s == nil {
		return true
	}
	_, found := slices.BinarySearch(s, n)
	return found
}

func (s steps) String() string {
	var parts []string
	for i := 0; i < len(s); {
		j := i
		for j+1 < len(s) && s[j+1] == s[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(s[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", s[i], s[j]))
		}
		i = j + 1
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ",")
}

func parseSteps(t *testing.T, text string) steps {
	s := steps{}
	if text == "none" {
		return s
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		lo, err := strconv.Atoi(from)
		require.NoError(t, err)
		hi := lo
		if isRange {
			hi, err = strconv.Atoi(to)
			require.NoError(t, err)
		}
		for n := lo; n <= hi; n++ {
			s = append(s, n)
		}
	}
	return s
}

// shrink removes steps from a script that fails as long as the rest fails too, first halves and then smaller and
// smaller parts ("delta debugging"). It returns the last run that failed.
func shrink(failed *trial, run func(*trial) *trial, end time.Time) *trial {
	keep := make(steps, failed.step+1)
	for i := range keep {
		keep[i] = i
	}
	fails := func(keep steps) bool {
		if c := run(&trial{keep: keep}); c.err != nil {
			failed = c
			return true
		}
		return false
	}
	if !fails(keep) {
		return failed // it failed after the steps
	}
	for part := (len(keep) + 1) / 2; time.Now().Before(end); part = (part + 1) / 2 {
		for at := 0; at < len(keep) && time.Now().Before(end); {
			less := slices.Delete(slices.Clone(keep), at, min(at+part, len(keep)))
			if fails(less) {
				keep = less
			} else {
				at += part
			}
		}
		if part == 1 {
			break
		}
	}
	return failed
}

// TestCrashShrinks: a failure that needs two of many steps is reduced to these two.
func TestCrashShrinks(t *testing.T) {
	run := func(kept *trial) *trial {
		c := &trial{keep: kept.keep, step: 99}
		if c.keep.has(17) && c.keep.has(70) {
			c.err = errEnded
		}
		return c
	}
	c := shrink(run(&trial{}), run, time.Now().Add(time.Minute))
	require.Equal(t, "17,70", c.keep.String())
	require.Equal(t, steps{0, 1, 2, 3, 7, 9, 10}, parseSteps(t, "0-3,7,9-10"))
	require.Equal(t, "0-3,7,9-10", parseSteps(t, "0-3,7,9-10").String())
}
