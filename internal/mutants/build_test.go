package mutants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// cost is what processes took.
type cost struct{ wall, processor time.Duration }

func (c cost) String() string {
	return fmt.Sprintf("%.1f s (%.1f of processors)", c.wall.Seconds(), c.processor.Seconds())
}

// measure runs a command and adds what it took, with the processes that it waited for.
func (c *cost) measure(cmd *exec.Cmd) ([]byte, error) {
	began := time.Now()
	out, err := cmd.CombinedOutput()
	c.wall += time.Since(began)
	if s := cmd.ProcessState; s != nil {
		c.processor += s.UserTime() + s.SystemTime()
	}
	return out, err
}

// builder builds test binaries, each once, of the engine with an overlay or as it is, and runs them.
type builder struct {
	overlay    string // file, "" for none
	dir        string
	binaries   map[string]string // by package
	built, ran cost
}

// build returns the test binary of a package. Without the C of package net the linker needs no gcc, half of the time of a build.
func (b *builder) build(pkg string) (string, error) {
	if name, ok := b.binaries[pkg]; ok {
		return name, nil
	}
	name := filepath.Join(b.dir, strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "_")+".test")
	args := []string{"test", "-c", "-vet=off", "-tags", "netgo", "-ldflags", "-s -w", "-o", name}
	if b.overlay != "" {
		args = append(args, "-overlay", b.overlay)
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = filepath.Join(root, pkg)
	if out, err := b.built.measure(cmd); err != nil {
		return "", fmt.Errorf("%w: %s", errBuild, out)
	}
	b.binaries[pkg] = name
	return name, nil
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

// run runs tests for so long at most. by is the one that failed.
func (b *builder) run(r testRun, limit time.Duration) (fate, error) {
	text, err := b.output(r, limit)
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		return r.verdict(text, limit)
	case err == nil && strings.Contains(text, "no tests to run"):
		err = fmt.Errorf("%v: no tests to run", r)
	}
	return fate{}, err
}

// output returns what tests print.
func (b *builder) output(r testRun, limit time.Duration) (string, error) {
	binary, err := b.build(r.dir)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit+30*time.Second)
	defer cancel()
	args := append([]string{"-test.v", "-test.failfast", "-test.run", r.run, "-test.timeout", limit.String()}, r.args...)
	if strings.Contains(r.run, "TestCrash") && r.dir == "./dbm" {
		args = append(args, "-crash.shrink=0") // that it fails is enough
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(root, r.dir)
	out, err := b.ran.measure(cmd)
	return string(out), err
}
