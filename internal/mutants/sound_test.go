package mutants

import (
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

// times holds how long each line of tests takes without any mutant.
type times map[string]time.Duration

// patience is how long a line of tests may take with a mutant. A mutant that hangs is given up after several times what its tests take
// without it.
func (known times) patience(r testRun) time.Duration {
	if usual, ok := known[r.String()]; ok {
		return min(*patience, max(20*time.Second, 8*usual))
	}
	return *patience
}

// sound runs tests on the engine as it is: what fails with a mutant then fails because of it. It notes how long they took, leaves out
// those whose time is known, and returns the time that it took of the processors.
func (known times) sound(t *testing.T, runs []testRun) (total time.Duration) {
	packages := map[string][]testRun{}
	for _, r := range runs {
		if _, ok := known[r.String()]; !ok && !slices.ContainsFunc(packages[r.dir], func(o testRun) bool { return o.String() == r.String() }) {
			packages[r.dir] = append(packages[r.dir], r)
		}
	}
	// The longest first: no processor is idle at the end.
	dirs := slices.SortedFunc(maps.Keys(packages), func(a, b string) int { return len(packages[b]) - len(packages[a]) })
	var mu sync.Mutex
	each(len(dirs), func(i int) {
		b := builder{binaries: map[string]string{}, dir: t.TempDir()}
		passed, err := b.pass(packages[dirs[i]])
		assert.NoError(t, err, "%s without any mutant", dirs[i])
		mu.Lock()
		defer mu.Unlock()
		for _, r := range packages[dirs[i]] {
			known[r.String()] = *patience // what has failed is not run again
		}
		maps.Copy(known, passed)
		total += b.built.processor + b.ran.processor
		t.Logf("%s without any mutant: builds %v, tests %v", dirs[i], b.built, b.ran)
	})
	return total
}

var passedTest = regexp.MustCompile(`(?m)^--- PASS: (\w+) \(([0-9.]+s)\)`)

// pass runs tests of one package, those with the same arguments in one process, and returns their times.
func (b *builder) pass(runs []testRun) (times, error) {
	took := times{}
	together := map[string][]testRun{}
	for _, r := range runs {
		args := strings.Join(r.args, " ")
		together[args] = append(together[args], r)
	}
	for _, some := range together {
		all := testRun{dir: some[0].dir, args: some[0].args}
		for _, r := range some {
			// The slashes between tests and subtests stand in no parentheses.
			if e := r.run; strings.Contains(e, "/") {
				all.run += "|" + e
			} else {
				all.run += "|(" + e + ")"
			}
		}
		all.run = all.run[1:]
		text, err := b.output(all, 10**patience)
		if err != nil {
			f, late := all.verdict(text, 10**patience)
			return nil, fmt.Errorf("%w: %s %s %v", err, f.by, f.how, late)
		}
		for _, r := range some {
			test, _, _ := strings.Cut(r.run, "/")
			if took[r.String()], err = timeOf(test, text); err != nil {
				return nil, fmt.Errorf("%v: %w", r, err)
			}
		}
	}
	return took, nil
}

// timeOf adds up the times of the tests that an expression matches.
func timeOf(expression, text string) (sum time.Duration, err error) {
	e, err := regexp.Compile(expression)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, m := range passedTest.FindAllStringSubmatch(text, -1) {
		if e.MatchString(m[1]) {
			took, err := time.ParseDuration(m[2])
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
