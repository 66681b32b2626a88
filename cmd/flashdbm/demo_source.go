package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// demoSource returns the directory whose files demo stores: chosen, or the
// installed Go distribution if that is empty.
func demoSource(ctx context.Context, chosen string) (string, error) {
	if chosen != "" {
		return chosen, nil
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w; install Go, or name a directory of files with --source", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// sourceFile is one regular file below the source directory.
type sourceFile struct {
	key  string // its path relative to the source, with slashes
	path string // where to read it
}

// sourceFiles lists the regular files below root by key. It follows links, because some systems install Go as a
// directory of links, except links back to a directory that contains them.
func sourceFiles(root string) ([]sourceFile, error) {
	var files []sourceFile
	var walk func(dir, key string, within []string) error
	walk = func(dir, key string, within []string) error {
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return err
		}
		if slices.Contains(within, resolved) {
			return nil
		}
		within = append(slices.Clip(within), resolved)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			file := sourceFile{path.Join(key, entry.Name()), filepath.Join(dir, entry.Name())}
			kind, err := kindOf(file.path, entry)
			if err != nil {
				return err
			}
			switch {
			case kind.IsDir():
				if err := walk(file.path, file.key, within); err != nil {
					return err
				}
			case kind.IsRegular():
				files = append(files, file)
			}
		}
		return nil
	}
	if err := walk(root, "", nil); err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b sourceFile) int { return strings.Compare(a.key, b.key) })
	return files, nil
}

// kindOf returns the type of entry; for a link, the type of its target. A link without a target has the type of a
// link, and callers skip it.
func kindOf(path string, entry fs.DirEntry) (fs.FileMode, error) {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.Type(), nil
	}
	status, err := os.Stat(path)
	if err != nil {
		if os.IsNotExist(err) {
			return entry.Type(), nil
		}
		return 0, err
	}
	return status.Mode().Type(), nil
}
