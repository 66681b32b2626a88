package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// cost is the time that processes took.
type cost struct{ wall, processor time.Duration }

func (c cost) String() string {
	return fmt.Sprintf("%.1f s (%.1f of processors)", c.wall.Seconds(), c.processor.Seconds())
}

func (c *cost) add(o cost) {
	c.wall += o.wall
	c.processor += o.processor
}

// measured runs a command and returns its cost, including that of the processes that it waited for.
func measured(cmd *exec.Cmd) (out []byte, c cost, err error) {
	began := time.Now()
	out, err = cmd.CombinedOutput()
	c.wall = time.Since(began)
	if s := cmd.ProcessState; s != nil {
		c.processor = s.UserTime() + s.SystemTime()
	}
	return out, c, err
}

// builder builds the test binaries of the engine, each once, with or without an overlay, and runs them. It may be
// used by several goroutines.
type builder struct {
	overlay string // file, "" for none
	dir     string

	mu         sync.Mutex
	binaries   map[string]*binary // by package
	built, ran cost
}

type binary struct {
	once sync.Once
	name string
	err  error
}

// build returns the test binary of a package. It is built without cgo in package net, so that the linker does not
// need gcc, which would take half of the time of a build.
func (b *builder) build(pkg string) (string, error) {
	b.mu.Lock()
	if b.binaries == nil {
		b.binaries = map[string]*binary{}
	}
	made := b.binaries[pkg]
	if made == nil {
		made = &binary{name: filepath.Join(b.dir, strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "_")+".test")}
		b.binaries[pkg] = made
	}
	b.mu.Unlock()
	made.once.Do(func() {
		args := []string{"test", "-c", "-vet=off", "-tags", "netgo", "-ldflags", "-s -w", "-o", made.name}
		if b.overlay != "" {
			args = append(args, "-overlay", b.overlay)
		}
		cmd := exec.Command("go", append(args, ".")...)
		cmd.Dir = filepath.Join(root, pkg)
		out, took, err := measured(cmd)
		if err != nil {
			made.err = fmt.Errorf("%w: %s", errBuild, out)
		}
		b.mu.Lock()
		b.built.add(took)
		b.mu.Unlock()
	})
	return made.name, made.err
}

// writeOverlay writes the files that a mutant changes.
func (m *mutant) writeOverlay(dir string) (string, error) {
	files, err := m.apply()
	if err != nil {
		return "", err
	}
	return writeOverlay(files, dir)
}

// run runs tests for at most the given time, with one mutant of a schema unless number is 0. by is the test that
// failed.
func (b *builder) run(r testRun, limit time.Duration, number int) (fate, error) {
	text, took, err := b.output(r, limit, number, "-test.failfast")
	f := fate{tests: took}
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		f, err = r.verdict(text, limit)
		f.tests = took
	case err == nil && strings.Contains(text, "no tests to run"):
		err = fmt.Errorf("%v: no tests to run", r)
	}
	return f, err
}

// output returns the output of tests.
func (b *builder) output(r testRun, limit time.Duration, number int, flags ...string) (string, cost, error) {
	binary, err := b.build(r.dir)
	if err != nil {
		return "", cost{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit+30*time.Second)
	defer cancel()
	args := append([]string{"-test.v", "-test.run", r.run, "-test.timeout", limit.String()}, flags...)
	args = append(args, r.args...)
	if strings.Contains(r.run, "TestCrash") && r.dir == "./dbm" {
		args = append(args, "-crash.shrink=0") // it is enough to know that the test fails
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(root, r.dir)
	cmd.WaitDelay = 10 * time.Second // processes that the tests have started may still run
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", chosen, number))
	out, took, err := measured(cmd)
	b.mu.Lock()
	b.ran.add(took)
	b.mu.Unlock()
	return string(out), took, err
}

// spent is the processor time that a builder has used.
func (b *builder) spent() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.built.processor + b.ran.processor
}
