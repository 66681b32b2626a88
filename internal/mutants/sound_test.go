package mutants

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// times holds how long each line of tests takes without a mutant. Keys are the line alone, or the overlay of a
// builder and the line. If the line fails with that builder, the value is failed.
type times map[string]time.Duration

const failed = -time.Second

// passed reports whether a line of tests passes with a builder's binaries and no mutant.
func (known times) passed(b *builder, r testRun) bool {
	took, ok := known[b.overlay+" "+r.String()]
	return ok && took != failed
}

// patience is how long a line of tests may take with a mutant. A mutant that hangs is given up after several times
// the time that its tests take without it.
func (known times) patience(r testRun) time.Duration {
	if usual, ok := known[r.String()]; ok {
		return min(*patience, max(20*time.Second, 8*usual))
	}
	return *patience
}

// sound runs tests on an engine without a mutant, so that a failure with a mutant is due to the mutant. It records
// how long they took, and skips those whose time is known. If must is set, a test that fails is an error.
func (known times) sound(t *testing.T, b *builder, runs []testRun, must bool) {
	packages := map[string][]testRun{}
	for _, r := range runs {
		if _, ok := known[b.overlay+" "+r.String()]; ok {
			continue
		}
		if !slices.ContainsFunc(packages[r.dir], func(o testRun) bool { return o.String() == r.String() }) {
			packages[r.dir] = append(packages[r.dir], r)
		}
	}
	// The longest runs first, so that no processor is idle at the end.
	dirs := slices.SortedFunc(maps.Keys(packages), func(a, b string) int { return len(packages[b]) - len(packages[a]) })
	var mu sync.Mutex
	each(len(dirs), func(i int) {
		took, err := b.pass(packages[dirs[i]])
		if must {
			assert.NoError(t, err, "%s without any mutant", dirs[i])
		} else if err != nil {
			t.Logf("%s without any mutant, in the schema: %v", dirs[i], err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, r := range packages[dirs[i]] {
			time, ok := took[r.String()]
			known[r.String()], known[b.overlay+" "+r.String()] = time, time
			if !ok { // it is not run again
				known[r.String()], known[b.overlay+" "+r.String()] = *patience, failed
			}
		}
	})
}

// pass runs tests of one package and returns the times of those that pass. Tests with the same arguments run in one
// process.
func (b *builder) pass(runs []testRun) (took times, all error) {
	took = times{}
	together := map[string][]testRun{}
	for _, r := range runs {
		args := strings.Join(r.args, " ")
		together[args] = append(together[args], r)
	}
	for _, some := range together {
		one := testRun{dir: some[0].dir, args: some[0].args}
		for _, r := range some {
			// No slash between a test and a subtest is inside parentheses.
			if e := r.run; strings.Contains(e, "/") {
				one.run += "|" + e
			} else {
				one.run += "|(" + e + ")"
			}
		}
		one.run = one.run[1:]
		text, _, err := b.output(one, 10**patience, 0)
		if errors.Is(err, errBuild) {
			return nil, err
		}
		if err != nil {
			f, late := one.verdict(text, 10**patience)
			all = errors.Join(all, fmt.Errorf("%w: %s %s %v", err, f.by, f.how, late))
		}
		for _, r := range some {
			test, _, _ := strings.Cut(r.run, "/")
			if time, err := timeOf(test, text); err == nil {
				took[r.String()] = time
			} else {
				all = errors.Join(all, fmt.Errorf("%v: %w", r, err))
			}
		}
	}
	return took, all
}

var endedTest = regexp.MustCompile(`(?m)^--- (PASS|FAIL): (\w+) \(([0-9.]+s)\)`)

// timeOf adds the times of the tests that match an expression, all of which must have passed.
func timeOf(expression, text string) (sum time.Duration, err error) {
	e, err := regexp.Compile(expression)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, m := range endedTest.FindAllStringSubmatch(text, -1) {
		if e.MatchString(m[2]) {
			if m[1] == "FAIL" {
				return 0, fmt.Errorf("%s fails", m[2])
			}
			took, err := time.ParseDuration(m[3])
			if err != nil {
				return 0, err
			}
			sum += took
			n++
		}
	}
	if n == 0 {
		err = fmt.Errorf("no test of that name has passed")
	}
	return sum, err
}
