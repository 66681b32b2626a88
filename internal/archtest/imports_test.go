package archtest

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A module has the rules for the packages of one go.mod. Directories and files are named relative to its root.
type module struct {
	path, root string // import path; directory relative to this package's
	atLeast    int    // number of files: fewer mean that the search is broken

	// layers are the packages of the module from the bottom up. Of the packages of the module, a package may import
	// only those in rows before its own. "..." stands for every package below a directory. Do not add an entry only
	// to make a build pass: where a package belongs is a decision about the whole architecture, see ARCHITECTURE.md
	// and docs/decisions.
	layers [][]string

	// outside lists the packages of other modules that a package may import. testOutside lists those that every
	// test may import as well.
	outside     map[string][]string
	testOutside []string

	// testAbove lists packages in a higher row that the tests of a package may import all the same: a client is
	// tested with a server.
	testAbove map[string][]string

	// testSupport lists packages that only tests may import. The tests of any package may.
	testSupport []string

	// unsafeFiles lists the files that may use package unsafe, and cgoDirs the directories that may use cgo.
	unsafeFiles, cgoDirs []string
}

// modules are the modules whose source is checked. Dependencies that only tests or benchmarks need are in modules
// of their own, which are not checked.
var modules = []*module{engine, servers}

var engine = &module{
	path: "flashdbm", root: "../..", atLeast: 100,
	layers: [][]string{
		{"internal/invariants"},
		{"lockfree", "logstore/vfs", "logstore/format", "internal/btree", "internal/backup", "internal/commit", "internal/event", "internal/keyspace", "internal/archtest", "internal/formatdoc", "internal/mutants"},
		{"logstore/space"},
		{"logstore", "internal/opener", "internal/lease"},
		{"override", "internal/redo", "internal/pagefile"},
		{"internal/writeset"},
		{"internal/salvage"},
		{"internal/inspect"},
		{"internal/overlay"},
		{"mvcc"},
		{"internal/beside"},
		{"dbm"},
		{"ndbm", "cmd/...", "internal/streams", "dbm/dbmvar"},
	},
	outside: map[string][]string{
		"internal/btree": {"golang.org/x/sys/unix"},
		"logstore/vfs":   {"golang.org/x/sys/unix", "golang.org/x/sys/windows", "github.com/edsrzf/mmap-go"},
		"ndbm":           {"golang.org/x/sys/unix"},
		"cmd/flashdbm":   {"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/pkg/profile", "golang.org/x/term"},
	},
	testOutside: []string{"github.com/stretchr/testify/assert", "github.com/stretchr/testify/require", "golang.org/x/sys/unix"},
	testSupport: []string{"internal/formatdoc", "internal/streams"},
	unsafeFiles: []string{
		"internal/btree/view.go",       // typed access to pages and to blocks outside the Go heap
		"logstore/vfs/os_darwin.go",    // a system call that x/sys does not wrap
		"logstore/vfs/os_windows.go",   // the buffer of a system call
		"logstore/vfs/window_linux.go", // one store of eight bytes to a mapping
		"lockfree/registry_test.go",    // the size of a slot
		"ndbm/exports.go",              // memory of C callers
		"ndbm/still.go",                // addresses that C is shown
	},
	cgoDirs: []string{
		"ndbm",
		"cmd/flashdbm", // looks which standard streams are closed before Go opens others in their places
	},
}

// servers is the module of the servers. A program that imports the client library compiles no other modules except
// x/sys and xxh3. Only package store uses the engine.
var servers = &module{
	path: "flashdbm/servers", root: "../../servers", atLeast: 30,
	layers: [][]string{
		{"fabric"},
		{"fabric/words"},
		{"fabric/ledger", "fabric/regions"},
		{"fabric/greeting"},
		{"fabric/mem", "fabric/shm", "fabric/tcp", "fabric/sim", "fabric/verbs"},
		{"fabric/fabrictest"},
		{"wire", "arena", "circle", "table"},
		{"guard"},
		{"replica"},
		{"replica/replicatest"},
		{"hydra/protocol", "ramp/protocol"},
		{"hydra", "ramp"},
		{"store", "cluster"},
		{"membership"},
		{"shard", "ramp/partition"},
		{"hydra/machine", "ramp/machine"},
		{"daemon/resp", "daemon/etcdmap"},
		{"daemon/flashdbmd", "daemon/bench"},
	},
	outside: map[string][]string{
		"fabric/words":      {"golang.org/x/sys/unix", "golang.org/x/sys/windows"},
		"fabric/shm":        {"golang.org/x/sys/unix"},
		"fabric/greeting":   {"golang.org/x/sys/unix"},
		"fabric/verbs":      {"golang.org/x/sys/unix"},
		"fabric/fabrictest": {"github.com/stretchr/testify/assert", "github.com/stretchr/testify/require"},
		"wire":              {"github.com/zeebo/xxh3"},
		"circle":            {"github.com/zeebo/xxh3"},
		"guard":             {"github.com/zeebo/xxh3"},
		"replica":           {"github.com/zeebo/xxh3"},
		"hydra/machine":     {"golang.org/x/sys/unix"},
		"store":             {"flashdbm/dbm"},
		"daemon/resp":       {"golang.org/x/sys/unix"},
		"daemon/etcdmap":    {"go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/client/v3/concurrency", "go.uber.org/zap"},
		"daemon/bench":      {"golang.org/x/sys/unix"},
		"daemon/flashdbmd":  {"github.com/pelletier/go-toml/v2", "go.etcd.io/etcd/server/v3/embed", "go.etcd.io/etcd/client/v3"}, // the last one: tests
	},
	testOutside: []string{
		"github.com/stretchr/testify/assert", "github.com/stretchr/testify/require", "golang.org/x/sys/unix", "github.com/zeebo/xxh3",
		"github.com/anishathalye/porcupine", "github.com/gomodule/redigo/redis", "github.com/redis/go-redis/v9", "go.etcd.io/etcd/server/v3/embed", "flashdbm/dbm", "flashdbm/logstore/vfs", "flashdbm/internal/opener", "flashdbm/internal/formatdoc",
	},
	testAbove:   map[string][]string{"hydra": {"shard", "hydra/machine"}, "ramp": {"store", "ramp/partition", "ramp/machine"}},
	testSupport: []string{"fabric/fabrictest", "replica/replicatest"},
	unsafeFiles: []string{
		"daemon/resp/socket_linux.go", // the buffers of system calls
		"fabric/shm/futex_linux.go",   // the place of a futex, and its system calls
		"fabric/verbs/connect.go",     // what libfabric is given and returns, here and in the next three
		"fabric/verbs/domain.go",
		"fabric/verbs/endpoint.go",
		"fabric/verbs/queue.go",
		"fabric/words/pages_windows.go", // memory of the system
		"fabric/words/words.go",         // whole words of memory that others change
		"guard/words.go",                // whole words of memory that others read
	},
	cgoDirs: []string{
		"fabric/verbs", // libfabric, with the build tag verbs
	},
}

// layerOf returns the row of a package's directory, or -1 if it has none.
func (m *module) layerOf(dir string) int {
	return slices.IndexFunc(m.layers, func(row []string) bool {
		return slices.ContainsFunc(row, func(p string) bool {
			under, wild := strings.CutSuffix(p, "...")
			return dir == p || (wild && strings.HasPrefix(dir, under))
		})
	})
}

func TestImports(t *testing.T) {
	for _, f := range source(t) {
		m := f.module
		layer := m.layerOf(f.dir())
		if !assert.GreaterOrEqual(t, layer, 0, "%s of %s: its package has no place among the layers", f.path, m.path) {
			continue
		}
		for _, imported := range f.imports {
			dir, ours := strings.CutPrefix(imported, m.path+"/")
			switch {
			case imported == "unsafe":
				assert.Contains(t, m.unsafeFiles, f.path, "unsafe in a file that is not meant for it")
			case imported == "C":
				assert.Contains(t, m.cgoDirs, f.dir(), "%s: C in a package that is not meant for it", f.path)
			case ours && f.test && dir == f.dir():
				// A test in an external test package.
			case ours && f.test && slices.Contains(m.testAbove[f.dir()], dir):
				// A test that uses a package above its own, such as a server.
			case ours && slices.Contains(m.testSupport, dir):
				assert.True(t, f.test, "%s imports %s, which is for tests", f.path, imported)
			case ours:
				below := m.layerOf(dir)
				assert.True(t, 0 <= below && below < layer, "%s imports %s, which is not below it", f.path, imported)
			case strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") || isOurs(imported):
				allowed := slices.Contains(m.outside[f.dir()], imported) || (f.test && slices.Contains(m.testOutside, imported))
				assert.True(t, allowed, "%s imports %s", f.path, imported)
			}
		}
	}
}

// isOurs reports whether a package belongs to one of the modules.
func isOurs(imported string) bool {
	return slices.ContainsFunc(modules, func(m *module) bool { return strings.HasPrefix(imported, m.path+"/") })
}

// TestUnsafeFiles fails if a file no longer needs its exception.
func TestUnsafeFiles(t *testing.T) {
	for _, m := range modules {
		used := map[string]bool{}
		for _, f := range m.source(t) {
			used[f.path] = slices.Contains(f.imports, "unsafe")
		}
		for _, name := range m.unsafeFiles {
			assert.True(t, used[name], "%s of %s does not use unsafe", name, m.path)
		}
	}
}

// TestNames finds names of packages and files that do not say what they contain.
func TestNames(t *testing.T) {
	empty := []string{"base", "common", "core", "data", "helper", "helpers", "info", "manager", "misc", "process", "types", "util", "utils"}
	for _, f := range source(t) {
		assert.NotContains(t, empty, strings.TrimSuffix(f.name, "_test"), "%s: name of the package", f.path)
		for word := range strings.SplitSeq(strings.TrimSuffix(path.Base(f.path), ".go"), "_") {
			assert.NotContains(t, empty, word, "%s: name of the file", f.path)
		}
	}
}
