package mutants

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	runMutants = flag.String("mutants", "", "run the mutants whose names match; . for all")
	ofPart     = flag.String("mutants.of", "", "run only those of a part: engine or servers")
	atOnce     = flag.Int("mutants.parallel", runtime.NumCPU(), "mutants that are run at once")
	patience   = flag.Duration("mutants.patience", 2*time.Minute, "how long one test of a mutant may take at most, and one whose usual time is unknown")
	limit      = flag.Duration("mutants.limit", 5*time.Minute, "how long all tests of a mutant may take")
	alone      = flag.Bool("mutants.alone", false, "build the engine for each mutant, also for those that one binary could have together")
	document   = flag.String("mutants.doc", "", "file that the result is written to")
)

// fate is the outcome of a mutant.
type fate struct {
	by    string  // the test that found it, "" if none did
	run   testRun // the line of tests with that test
	how   string  // first line of the test's message
	build cost    // of the test binaries
	tests cost
	err   error // why it could not be tried
}

// TestMutants runs the mutants after checking that their tests pass without them. First it runs those in a schema
// with the schema's binaries. Then it runs those that are not in the schema, or that no test found there, in
// binaries of their own.
func TestMutants(t *testing.T) {
	if *runMutants == "" {
		t.Skip("-mutants tells which to run")
	}
	wanted := regexp.MustCompile(*runMutants)
	mutants, rules := readMutants(t), readRules(t)
	all := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !wanted.MatchString(m.name) || *ofPart != "" && *ofPart != m.part() })
	require.NotEmpty(t, all, "no mutant %s has such a name", *ofPart)
	began, commit := time.Now(), revision() // read before the document changes
	doc := readDocument(filepath.Join(root, cmp.Or(*document, "docs/mutants.md")))
	for i := range all {
		all[i].expect(doc.by[all[i].name])
	}
	fates := make([]fate, len(all))
	var mu sync.Mutex
	total := time.Duration(0)
	tell := func(i int, f fate) {
		mu.Lock()
		defer mu.Unlock()
		fates[i] = f
		total += f.build.processor
		t.Logf("%-40s %v", all[i].name, f)
		doc.by[all[i].name] = cmp.Or(f.by, notCaught)
		if *document != "" { // after each mutant, in case the run is stopped
			assert.NoError(t, os.WriteFile(filepath.Join(root, *document), doc.describe(rules, mutants), 0o644))
		}
	}
	plain, rest := &builder{dir: t.TempDir()}, make([]int, 0, len(all))
	usual := times{}
	if *alone {
		for i := range all {
			rest = append(rest, i)
		}
	} else {
		rest, total = tryTogether(t, all, usual, tell)
	}
	var first []testRun
	for _, i := range rest {
		first = append(first, all[i].tests[0])
	}
	usual.sound(t, plain, first, true)
	t.Logf("%d mutants are tried alone; without any mutant: builds %v, tests %v", len(rest), plain.built, plain.ran)
	each(len(rest), func(k int) {
		f := all[rest[k]].try(t, usual)
		tell(rest[k], f)
		mu.Lock()
		defer mu.Unlock()
		total += f.tests.processor
	})
	caught := 0
	var later []testRun // lines of tests that found mutants, but were not the first line of any
	for i, f := range fates {
		switch {
		case f.err != nil:
			t.Errorf("mutant %s could not be tried: %v", all[i].name, f.err)
		case f.by == "":
			t.Errorf("mutant %s (%s) survives %v: a test is missing", all[i].name, all[i].what, all[i].tests)
		default:
			caught++
			if slices.Contains(rest, i) {
				later = append(later, f.run)
			}
		}
	}
	usual.sound(t, plain, later, true)
	total += plain.spent()
	if *document != "" {
		for _, part := range parts {
			if n := countOf(part, mutants); n == countOf(part, all) {
				doc.whole[part] = wholeRun(part, n, fmt.Sprintf("at commit %s, on %s, in %.0f minutes on %d processors, with %.0f minutes of processor time",
					commit, began.Format("2 January 2006"), time.Since(began).Minutes(), runtime.NumCPU(), total.Minutes()))
			}
		}
		assert.NoError(t, os.WriteFile(filepath.Join(root, *document), doc.describe(rules, mutants), 0o644))
	}
	t.Logf("%d of %d mutants caught in %.1f minutes, of processors %.1f", caught, len(all), time.Since(began).Minutes(), total.Minutes())
	slowest(t, all, fates)
}

// tryTogether tries mutants in the binaries of a schema, one line of tests after another. It returns the mutants
// that have to be tried alone: those that are not in the schema, those whose tests do not pass in the schema even
// without a mutant, and those that no test found.
func tryTogether(t *testing.T, all []mutant, usual times, tell func(int, fate)) (rest []int, total time.Duration) {
	s, err := newSchema(all)
	require.NoError(t, err)
	var packages []string
	next := make([]int, 0, len(all)) // mutants with tests still to be tried
	for i := range all {
		packages = append(packages, all[i].tests[0].dir)
		next = append(next, i)
	}
	b, err := s.build(t, packages)
	require.NoError(t, err)
	var mu sync.Mutex
	for turn := 0; len(next) > 0; turn++ {
		var lines []testRun
		for _, i := range next {
			lines = append(lines, all[i].tests[turn])
		}
		usual.sound(t, b, lines, false)
		if turn == 0 {
			t.Logf("%d of %d mutants are in one schema; without any of them: builds %v, tests %v", len(s.numbers), len(all), b.built, b.ran)
		}
		now := next
		next = nil
		each(len(now), func(k int) {
			i := now[k]
			r, number := lines[k], s.numbers[all[i].name]
			if number != 0 && usual.passed(b, r) {
				most := *patience
				if all[i].hangs {
					most = usual.patience(r)
				}
				f, err := b.run(r, most, number)
				if all[i].hangs && errors.Is(err, errLate) {
					f.by, f.run = neverEnds(r), r
				}
				if f.by != "" {
					tell(i, f)
					return
				}
				t.Logf("%-40s is not found by %v in the schema: %v", all[i].name, r, cmp.Or(err, errPassed))
			}
			mu.Lock()
			defer mu.Unlock()
			if number != 0 && turn+1 < len(all[i].tests) {
				next = append(next, i)
			} else {
				rest = append(rest, i)
			}
		})
		slices.Sort(next)
	}
	slices.Sort(rest)
	return rest, b.spent()
}

// slowest reports which mutants took the most processor time.
func slowest(t *testing.T, all []mutant, fates []fate) {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	spent := func(i int) time.Duration { return fates[i].build.processor + fates[i].tests.processor }
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(spent(b), spent(a)) })
	for _, i := range order[:min(20, len(order))] {
		f := fates[i]
		t.Logf("slow: %-40s builds %v, tests %v: %s", all[i].name, f.build, f.tests, f.by)
	}
}

// parts are run and reported separately: they are the modules that have mutants.
var parts = []string{"engine", "servers"}

// part returns the part that the mutant changes.
func (m *mutant) part() string {
	if slices.ContainsFunc(m.hunks, func(h hunk) bool { return strings.HasPrefix(h.pkg, "servers/") }) {
		return "servers"
	}
	return "engine"
}

// countOf counts the mutants of a part.
func countOf(part string, mutants []mutant) (n int) {
	for i := range mutants {
		if mutants[i].part() == part {
			n++
		}
	}
	return n
}

func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty=+").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// expect moves to the front the test that found the mutant before, as the document records it by package and test.
// Then most other tests need not be built.
func (m *mutant) expect(by string) {
	dir, test, ok := strings.Cut(by, " ")
	if !ok {
		return
	}
	for i, r := range m.tests {
		if e, err := regexp.Compile(r.run); r.dir == "./"+dir && err == nil && e.MatchString(test) {
			one := testRun{r.dir, "^" + test + "$", r.args}
			if r.run == one.run {
				m.tests = slices.Delete(m.tests, i, i+1)
			}
			m.tests = slices.Insert(m.tests, 0, one)
			return
		}
	}
}

func (f fate) String() string {
	switch {
	case f.err != nil:
		return "not tried: " + f.err.Error()
	case f.by == "":
		return fmt.Sprintf("SURVIVES builds %v, tests %v", f.build, f.tests)
	}
	return fmt.Sprintf("%s, builds %v, tests %v: %s", f.by, f.build, f.tests, f.how)
}

// each calls do for 0 to n-1, several at a time.
func each(n int, do func(i int)) {
	var wait sync.WaitGroup
	slot := make(chan bool, max(1, *atOnce))
	for i := range n {
		slot <- true
		wait.Go(func() {
			defer func() { <-slot }()
			do(i)
		})
	}
	wait.Wait()
}

// try builds a mutant alone and runs its tests until one fails.
func (m *mutant) try(t *testing.T, usual times) (f fate) {
	began := time.Now()
	dir, err := os.MkdirTemp(t.TempDir(), "mutant")
	if err != nil {
		return fate{err: err}
	}
	defer os.RemoveAll(dir)
	b := &builder{dir: dir}
	defer func() { f.build, f.tests = b.built, b.ran }()
	if b.overlay, err = m.writeOverlay(dir); err != nil {
		return fate{err: err}
	}
	var late error // errors of runs that were ended before they had a result
	for _, r := range m.tests {
		left := *limit - time.Since(began)
		if left <= 0 {
			late = errors.Join(late, fmt.Errorf("no time for %v", r))
			continue
		}
		most := *patience // tests that detect a lack of progress themselves take some time
		if m.hangs {
			most = usual.patience(r)
		}
		if f, err = b.run(r, min(left, most), 0); f.by != "" || errors.Is(err, errBuild) {
			f.err = err
			return f
		}
		if m.hangs && errors.Is(err, errLate) {
			return fate{by: neverEnds(r), run: r}
		}
		late = errors.Join(late, err)
	}
	return fate{err: late}
}

func neverEnds(r testRun) string {
	return strings.TrimPrefix(r.dir, "./") + " " + strings.Trim(r.run, "^$()") + ", which does not end"
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\w+)`)
	failedPart = regexp.MustCompile(`(?m)^\s*--- FAIL: ([\w/#-]+)`)
	brokenTest = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*|hangs; .*|.*SIG[A-Z]+.*)$`)
	runningIn  = regexp.MustCompile(`(?:tests:\n\s+|\.)(Test\w+)`)
	replayOf   = regexp.MustCompile(`(?m)\breplay: .*$`)
	complaint  = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: *(?:\n\s+)*(?:Error Trace:[^\n]*\n\s+)?(?:[\w./]+_test\.go:\d+\n\s+)*(?:Error:\s*)?(.*)$`)
)

// verdict interprets the output of tests that did not all pass.
func (r testRun) verdict(text string, limit time.Duration) (f fate, err error) {
	f.run = r
	f.by = r.run
	if m := failedTest.FindStringSubmatch(text); m != nil {
		f.by = m[1]
		if strings.Contains(r.run, "/") {
			f.by = deepest(text)
		}
	} else if m := runningIn.FindStringSubmatch(text); m != nil {
		f.by = m[1]
	}
	// On a busy machine, a test that only timed out might do so without the mutant too. After a failure, the
	// cleanup of a test may wait for ever.
	if strings.Contains(text, "panic: test timed out") && !strings.Contains(text, "Error Trace:") {
		return fate{}, fmt.Errorf("%v %w %v", r, errLate, limit)
	}
	f.by = strings.TrimPrefix(r.dir, "./") + " " + strings.Trim(f.by, "^$")
	if m := brokenTest.FindString(text); m != "" {
		f.how = m
	} else if m := replayOf.FindString(text); m != "" {
		f.how = strings.TrimSpace(m)
	} else if m := complaint.FindStringSubmatch(text); m != nil {
		f.how = m[1]
	}
	if len(f.how) > 150 {
		f.how = f.how[:150] + "..."
	}
	return f, nil
}

// deepest returns the first failed subtest without failed subtests of its own: a test reports its own failure
// before those of its subtests.
func deepest(text string) (test string) {
	for _, m := range failedPart.FindAllStringSubmatch(text, -1) {
		if test != "" && !strings.HasPrefix(m[1], test+"/") {
			break
		}
		test = m[1]
	}
	return test
}

var (
	errLate   = errors.New("took longer than")
	errBuild  = errors.New("does not build")
	errPassed = errors.New("it passes")
)
