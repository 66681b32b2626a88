package mutants

import (
	"cmp"
	"context"
	"encoding/json"
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
	inFiles    = flag.String("mutants.in", "", "run only those that change a file whose path begins so, from the root of the repository")
	atOnce     = flag.Int("mutants.parallel", runtime.NumCPU(), "mutants that are run at once")
	patience   = flag.Duration("mutants.patience", 2*time.Minute, "how long one test of a mutant may take")
	limit      = flag.Duration("mutants.limit", 5*time.Minute, "how long all tests of a mutant may take")
	document   = flag.String("mutants.doc", "", "file that the result is written to")
)

// fate is what became of a mutant.
type fate struct {
	by   string // the test that found it, "" if none did
	how  string // first line of what it said
	took time.Duration
	err  error // it could not be tried
}

// TestMutants runs the mutants, after it has made sure that their tests pass without them.
func TestMutants(t *testing.T) {
	if *runMutants == "" {
		t.Skip("-mutants tells which to run")
	}
	wanted := regexp.MustCompile(*runMutants)
	mutants, rules := readMutants(t), readRules(t)
	all := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !wanted.MatchString(m.name) || !m.changes(*inFiles) })
	require.NotEmpty(t, all)
	began := time.Now()
	sound(t, all)
	doc := readDocument(filepath.Join(root, cmp.Or(*document, "docs/mutants.md")))
	for i := range all {
		all[i].expect(doc.by[all[i].name])
	}
	fates := make([]fate, len(all))
	var mu sync.Mutex
	tried := 0
	each(len(all), func(i int) {
		fates[i] = all[i].try(t)
		mu.Lock()
		defer mu.Unlock()
		tried++
		t.Logf("%-40s %v", all[i].name, fates[i])
		doc.by[all[i].name] = fates[i].by
		if fates[i].by == "" {
			doc.by[all[i].name] = notCaught
		}
		if tried == len(mutants) {
			doc.whole = fmt.Sprintf("All of them were tried in one run at commit %s, on %s, in %.0f minutes on %d processors.",
				revision(), began.Format("2 January 2006"), time.Since(began).Minutes(), runtime.NumCPU())
		}
		if *document != "" { // each time, should the run be cut off
			assert.NoError(t, os.WriteFile(filepath.Join(root, *document), doc.describe(rules, mutants), 0o644))
		}
	})
	caught := 0
	for i, f := range fates {
		switch {
		case f.err != nil:
			t.Errorf("mutant %s could not be tried: %v", all[i].name, f.err)
		case f.by == "":
			t.Errorf("mutant %s (%s) survives %v: a test is missing", all[i].name, all[i].what, all[i].tests)
		default:
			caught++
		}
	}
	t.Logf("%d of %d mutants caught", caught, len(all))
}

// changes reports whether the mutant changes a file whose path begins in the given way.
func (m *mutant) changes(prefix string) bool {
	return slices.ContainsFunc(m.hunks, func(h hunk) bool { return strings.HasPrefix(h.file, prefix) })
}

func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty=+").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// expect puts the test first that has found the mutant before, as a document names it: package and test. Most others need not be built.
func (m *mutant) expect(by string) {
	dir, test, ok := strings.Cut(by, " ")
	if !ok {
		return
	}
	for _, r := range m.tests {
		if e, err := regexp.Compile(r.run); r.dir == "./"+dir && err == nil && e.MatchString(test) {
			m.tests = slices.Insert(m.tests, 0, testRun{r.dir, "^" + test + "$", r.args})
			return
		}
	}
}

func (f fate) String() string {
	switch {
	case f.err != nil:
		return "not tried: " + f.err.Error()
	case f.by == "":
		return fmt.Sprintf("SURVIVES %.1f s", f.took.Seconds())
	}
	return fmt.Sprintf("%s, %.1f s: %s", f.by, f.took.Seconds(), f.how)
}

// each calls do for 0 to n-1, a few at once.
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

// sound runs all tests of the mutants on the engine as it is.
func sound(t *testing.T, all []mutant) {
	expressions := map[string][]string{} // by package
	for _, m := range all {
		for _, r := range m.tests {
			e := "(" + r.run + ")"
			if strings.Contains(r.run, "/") {
				e = r.run // the slashes between tests and subtests stand in no parentheses
			}
			if !slices.Contains(expressions[r.dir], e) {
				expressions[r.dir] = append(expressions[r.dir], e)
			}
		}
	}
	b := builder{binaries: map[string]string{}, dir: t.TempDir()}
	for dir, es := range expressions {
		binary, err := b.build(dir)
		if err == nil {
			var found fate
			if found, err = (testRun{dir: dir, run: strings.Join(es, "|")}).on(binary, 10**patience); err == nil && found.by != "" {
				err = fmt.Errorf("%s fails: %s", found.by, found.how)
			}
		}
		require.NoError(t, err, "%s without any mutant", dir)
		t.Logf("%s passes without any mutant", dir)
	}
}

// builder builds test binaries, each once, of the engine with an overlay or as it is.
type builder struct {
	overlay  string // file, "" for none
	dir      string
	binaries map[string]string // by package
}

func (b *builder) build(pkg string) (string, error) {
	if name, ok := b.binaries[pkg]; ok {
		return name, nil
	}
	name := filepath.Join(b.dir, strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "_")+".test")
	args := []string{"test", "-c", "-ldflags", "-s -w", "-o", name}
	if b.overlay != "" {
		args = append(args, "-overlay", b.overlay)
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = filepath.Join(root, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("does not build: %s", out)
	}
	b.binaries[pkg] = name
	return name, nil
}

// try runs the tests of a mutant until one fails.
func (m *mutant) try(t *testing.T) (f fate) {
	began := time.Now()
	defer func() { f.took = time.Since(began) }()
	dir, err := os.MkdirTemp(t.TempDir(), "mutant")
	if err != nil {
		return fate{err: err}
	}
	defer os.RemoveAll(dir)
	b := builder{binaries: map[string]string{}, dir: dir}
	if b.overlay, err = m.writeOverlay(dir); err != nil {
		return fate{err: err}
	}
	var late error // of tests that were not heard to the end
	for _, r := range m.tests {
		left := *limit - time.Since(began)
		if left <= 0 {
			late = errors.Join(late, fmt.Errorf("no time for %v", r))
			continue
		}
		binary, err := b.build(r.dir)
		if err != nil {
			return fate{err: err}
		}
		if f, err = r.on(binary, min(left, *patience)); f.by != "" {
			return f
		}
		if m.hangs && errors.Is(err, errLate) {
			return fate{by: strings.TrimPrefix(r.dir, "./") + " " + strings.Trim(r.run, "^$()") + ", which does not end"}
		}
		late = errors.Join(late, err)
	}
	return fate{err: late}
}

// writeOverlay writes the changed files and the description that the go command wants of them.
func (m *mutant) writeOverlay(dir string) (string, error) {
	files, err := m.apply()
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range files {
		at, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		replace[at] = filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(replace[at], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, b, 0o600)
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\w+)`)
	failedPart = regexp.MustCompile(`(?m)^\s*--- FAIL: ([\w/#-]+)`)
	brokenTest = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*|hangs; .*|.*SIG[A-Z]+.*)$`)
	runningIn  = regexp.MustCompile(`(?:tests:\n\s+|\.)(Test\w+)`)
	complaint  = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: *(?:\n\s+)*(?:Error Trace:[^\n]*\n\s+)?(?:[\w./]+_test\.go:\d+\n\s+)*(?:Error:\s*)?(.*)$`)
)

// on runs the tests with a binary, for so long at most. by is the one that failed.
func (r testRun) on(binary string, limit time.Duration) (f fate, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit+30*time.Second)
	defer cancel()
	args := append([]string{"-test.v", "-test.failfast", "-test.run", r.run, "-test.timeout", limit.String()}, r.args...)
	if strings.Contains(r.run, "TestCrash") && r.dir == "./dbm" {
		args = append(args, "-crash.shrink=0") // that it fails is enough
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(root, r.dir)
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err == nil {
		if strings.Contains(text, "no tests to run") {
			return f, errors.New("no tests to run")
		}
		return fate{}, nil
	}
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return f, err
	}
	f.by = r.run
	if m := failedTest.FindStringSubmatch(text); m != nil {
		f.by = m[1]
		if strings.Contains(r.run, "/") {
			f.by = deepest(text)
		}
	} else if m := runningIn.FindStringSubmatch(text); m != nil {
		f.by = m[1]
	}
	// What only timed out may do so without the mutant on a busy machine. After a failure, the end of a test may wait for ever.
	if strings.Contains(text, "panic: test timed out") && !strings.Contains(text, "Error Trace:") {
		return fate{}, fmt.Errorf("%v %w %v", r, errLate, limit)
	}
	f.by = strings.TrimPrefix(r.dir, "./") + " " + strings.Trim(f.by, "^$")
	if m := brokenTest.FindString(text); m != "" {
		f.how = m
	} else if m := complaint.FindStringSubmatch(text); m != nil {
		f.how = m[1]
	}
	if len(f.how) > 150 {
		f.how = f.how[:150] + "..."
	}
	return f, nil
}

// deepest returns the first subtest that failed and has none itself: a test reports its own failure before those of its subtests.
func deepest(text string) (test string) {
	for _, m := range failedPart.FindAllStringSubmatch(text, -1) {
		if test != "" && !strings.HasPrefix(m[1], test+"/") {
			break
		}
		test = m[1]
	}
	return test
}

var errLate = errors.New("took longer than")
