# The commands of the project. Go, gcc (for the race detector), make and git are enough; the rest comes with Go's modules.
#
#   make demo     the main job on real input, in less than 3 minutes and 2 GB of disk
#   make quick    between edits: the part of make test that finds most mistakes of the engine in little more than a minute
#   make test     all that must hold before a change is taken; CI runs this and nothing else
#   make test-servers  what of that concerns the servers, a module of its own
#   make soak     the long tests, cut to fit 80 minutes, and vet for other systems
#   make invariants  the engine's tests in a build that checks its own invariants while it works
#   make crash    power cuts and kills of random scripts, for CRASHTIME on two processors
#   make scripts  a power cut at every operation of parts of long scripts, for SCRIPTTIME on two processors
#   make faults   every write, sync, allocation and mapping of a tour through the engine fails in turn, for FAULTTIME on two processors
#   make damage   every bit of small databases, all lengths, sectors, hostile pages: at most DAMAGETIME for each of these
#   make salvage  SALVAGEFILES damaged files, salvaged and compared with what was committed
#   make hostile  HOSTILEFILES files with right checksums and wrong structure, through all that a program does with a database
#   make isolation  ISOLATIONRUNS histories of each kind of 10,000 transactions each, replayed; and as many searched for cycles
#   make full     full files of all sizes and full file systems on loop devices (root): all deleted, filled again
#   make space    what databases take on disk, at full size: half an hour or more, and 3 GB
#   make fuzz     each fuzz target for FUZZTIME
#   make linear   histories of single keys, checked by porcupine; a module of its own
#   make sim      SIMRUNS seeds of the simulators of a server, of a cluster and of keys that move between shards, from SIMFIRST on; a failing seed prints the line that plays it again
#   make sim-ramp the same for RAMP tables
#   make mutants  the tests of the tests: seeded bugs of the engine, and which test finds each; writes docs/mutants.md
#   make soak-ramp  RAMP tables, of one node and of three, whose servers and clients are killed, and connections cut, for SOAKRAMP transactions in each durability
#   make mutants-servers  the same for the servers
#   make fuse     images of what the kernel writes back, on FUSE and below ext4 and XFS; a module of its own, for root on Linux
#   make fuse-packages  what that needs of Debian's packages
#   make verbs    the fabric over RDMA devices, by libfabric's tcp, without a device; make verbs-guest in a virtual machine with one, see servers/docs/fabric.md
#   make flashdbmd-verbs  bin/flashdbmd with the setting --verbs, for programs that use the client library over RDMA devices
#   make verbs-packages  what these need of Debian's packages
#   make kill     KILLROUNDS processes killed in the middle of what they do
#   make bench    the benchmark, hours; make bench-quick a tenth of it, less than 10 minutes. Both install what they need
#   make ndbm     the C libraries for programs of ndbm and dbm, in bin/ndbm/lib; needs binutils too
#   make install-ndbm PREFIX=DIR
#   make test-ndbm  the C libraries with real programs, whose sources it fetches from Debian's archive
#   make test-ndbm-packages  what that needs of Debian's packages
#   make opentime how long a database of 1 GB takes to open that was killed while 33 goroutines wrote
#   make build    bin/flashdbm
#   make flashdbm-import  bin/flashdbm-import, which reads the files of bbolt, Badger and cdb
#   make test-tools  the tests of that and of the metrics for Prometheus, modules of their own
#   make flashdbmd  bin/flashdbmd, the server
#   make bench-ramp  RAMP tables beside sockets, Send/Recv and two-phase locking, and redis-benchmark beside Redis, which has to be installed
#   make bench-hydra  HydraDB beside Redis and memcached, which have to be installed: figures 9 to 11 of the paper, and what clients of Redis do
#   make demo-ramp  atomic transactions of several keys, on one node and on three: clients and servers are killed, nothing is seen in part; two minutes
#   make demo-hydra  the main job of the server in less than 3 minutes: load, one-sided Reads beside messages, kill -9, verify
#   make demo-cluster  three nodes, the primary killed, a node added, while programs work; the history is checked: half a minute
#   make kill-cluster  CLUSTERKILLS primaries killed, and half as many stopped, in each durability: nothing lost, twice or stale; times without writes
#   make cut-cluster   CLUSTERKILLS cuts of a cluster's network, and as many stopped primaries, and the same for RAMP tables: histories are linearizable, transactions whole. It takes root and iproute2
#   make install  flashdbm into Go's bin directory

GO       ?= go
FUZZTIME ?= 3m
# Seeds of each random model in make soak, the first of them (another one means other runs), and the time of the crash test.
SOAKRUNS  ?= 8000
SOAKFIRST ?= 1000
SOAKTIME  ?= 8m
# Processes that make kill kills; make test kills ten.
KILLROUNDS ?= 500
# Images that make fuse takes: of the database's file, and of a disk with each file system.
FILEIMAGES ?= 18000
DISKIMAGES ?= 1000
# Histories that make linear checks.
HISTORIES ?= 300
# Seeds of make sim, and the first one.
SIMRUNS  ?= 10000
SIMFIRST ?= 1
# Mutants that make mutants tries: an expression for their names.
MUTANTS ?= .

# The crash simulator: how long, the first seed, and how many transactions the long scripts have.
CRASHTIME   ?= 15m
CRASHFIRST  ?= 100000
SCRIPTTIME  ?= 10m
FAULTTIME   ?= 5m
DAMAGETIME  ?= 6m
# Hostile files, and the first seed: another one means other files.
HOSTILEFILES ?= 1000000
HOSTILEFROM  ?= 1
# Damaged files that are salvaged, and the first seed.
SALVAGEFILES ?= 600
SALVAGEFIRST ?= 1
# Histories of each of three durabilities, and of the black box under each of two isolations.
ISOLATIONRUNS ?= 4
ISOLATIONFIRST ?= 1000
SCRIPTSTEPS ?= 2000

# Modules for what brings other modules along: the metrics of Prometheus, and the readers of other stores' files.
TOOLS = tools/dbmprom tools/flashdbm-import

# Systems other than this one that the modules must compile for. No file depends on the processor: make soak alone has a second one.
CROSS = darwin/arm64 windows/amd64

# Tests are built without the C of package net, which takes gcc longer than Go takes for the package. Modules
# that are looked at without C then share it and all that imports it.
PURE = -tags netgo

.DELETE_ON_ERROR:
.PHONY: space demo test vet format imports unit race vet-cross soak fuzz kill opentime linear fuse fuse-packages mutants build install clean
.PHONY: ndbm install-ndbm test-ndbm test-ndbm-packages

demo: build
	bin/flashdbm demo

build:
	$(GO) build -o bin/flashdbm ./cmd/flashdbm

.PHONY: flashdbmd
flashdbmd:
	cd servers && $(GO) build -o ../bin/flashdbmd ./daemon/flashdbmd

.PHONY: demo-hydra
demo-hydra: flashdbmd
	bin/flashdbmd demo

.PHONY: bench-ramp
bench-ramp: flashdbmd
	cd servers && $(GO) run ./daemon/bench -out daemon/bench/report
	servers/daemon/bench/redis.sh bin/flashdbmd

.PHONY: bench-hydra
bench-hydra: flashdbmd
	cd servers && $(GO) run ./daemon/bench -hydra -records 100000 -each 1s -out daemon/bench/report
	for mode in memory async sync; do servers/daemon/bench/resp.sh bin/flashdbmd $$mode; done

.PHONY: demo-ramp demo-cluster
demo-ramp: flashdbmd
	bin/flashdbmd demo ramp
	@echo; cd servers && $(GO) test $(PURE) -vet=off -count 1 ./daemon/flashdbmd -run '^TestRampClusterDemo$$' -v -args -cluster.demo 4s | grep -v -E '^(=== |--- |PASS|ok |redis: )'

demo-cluster:
	@cd servers && $(GO) test $(PURE) -vet=off -count 1 ./daemon/flashdbmd -run '^TestClusterDemo$$' -v -args -cluster.demo 5s | grep -v -E '^(=== |--- |PASS|ok |redis: )'

install:
	$(GO) install ./cmd/flashdbm

# Rarer collections, for the compiler, vet and the tests of memory structures alike; make soak has them as often as programs do.
test vet imports unit race test-servers ahead: export GOGC ?= 400

# Without tables for debuggers, which no test needs: an empty cache of builds is filled with an eighth less of the processors' time. Traces of
# goroutines have their files and lines. All that make test runs has the same flags, or it would be compiled twice.
test quick vet imports unit race test-tools test-servers ahead: export GOFLAGS ?= -gcflags=all=-dwarf=false

# At the end of each process the race detector waits for a second for what goroutines that are left may still do. A tenth of that here, for
# each of forty packages; all of it in make soak.
race test-servers: export GORACE ?= atexit_sleep_ms=100

# One after the other, also under make -j: they share two processors, and some of the tests have a time limit.
test:
	@tmp=$$(mktemp -d) || exit 1; GOTMPDIR=$$tmp exec $(MAKE) ahead >/dev/null 2>&1 & ahead=$$!; \
		end() { kill $$ahead; wait $$ahead; rm -rf "$$tmp"; } 2>/dev/null; trap 'end; exit 1' INT TERM; \
		$(MAKE) format && $(MAKE) vet && $(MAKE) imports && $(MAKE) unit; failed=$$?; end; exit $$failed
	$(MAKE) race
	$(MAKE) -C ndbm check
	$(MAKE) test-tools
	$(MAKE) test-servers

# What a developer runs between two edits: gofmt, vet of the module, the rules of imports and the short tests, of which the go command runs
# those of packages that have changed, or that import one that has. The commands' tests, which are processes, are left to make test, and so
# is a test that waits for half a minute.
.PHONY: quick
quick: format
	$(GO) vet $(PURE) ./...
	GOGC=400 $(GO) test $(PURE) -vet=off -short -parallel 6 -skip '^TestReadersHoldWhatTheySee$$' -timeout 15m $$($(GO) list ./... | grep -v -E '/(cmd/flashdbm|ndbm)$$')

# vet leaves a processor idle while it waits for package runtime and the like, and so do the unit tests, for a fifth of their time: on an empty
# cache of builds what comes after them is compiled then, with the lowest priority. The tests use what they find, and tell what does not compile.
# What is not compiled when the unit tests end is left to the tests that need it: beside other processes it would never be. Each command takes
# the place of its shell, to be ended with make.
.PHONY: ahead
ahead:
	-CGO_ENABLED=1 exec nice -n 19 $(GO) list $(PURE) -race -test -deps -export $(RACED)
	-cd servers && exec nice -n 19 $(GO) list $(PURE) -test -deps -export ./...
	-cd servers && CGO_ENABLED=1 exec nice -n 19 $(GO) list $(PURE) -race -test -deps -export $(RACED_SERVERS)
	-exec nice -n 19 $(MAKE) -C ndbm all

format:
	@unformatted=$$($$($(GO) env GOROOT)/bin/gofmt -l .) && test -z "$$unformatted" || \
		{ echo "not formatted by gofmt: $$unformatted" >&2; exit 1; }

# The modules beside the engine's too, without their C. The benchmark's has to build its peers: three minutes of a processor, which make soak
# takes.
vet:
	$(GO) vet $(PURE) ./...
	@for module in internal/linear internal/writeback $(TOOLS); do \
		echo "vet of $$module"; (cd $$module && CGO_ENABLED=0 $(GO) vet $(PURE) ./...) || exit 1; \
	done

# Seconds, of which the processor is used for two; vet has compiled what they need.
.PHONY: test-tools flashdbm-import
test-tools:
	@for module in $(TOOLS); do \
		(cd $$module && CGO_ENABLED=0 $(GO) test $(PURE) -vet=off -timeout 5m ./...) || exit 1; \
	done

flashdbm-import:
	cd tools/flashdbm-import && CGO_ENABLED=0 $(GO) build -o ../../bin/flashdbm-import .

.PHONY: vet-bench
vet-bench:
	cd bench && CGO_ENABLED=0 $(GO) vet ./...

# Who imports whom, where unsafe is allowed, the size of files, and what does not compile for other systems, of both modules: run before
# the rest because it says at once what is in the wrong place. The other systems are type-checked from source, seconds of a processor for
# each. go vet compiles the standard library for each of them first: make soak has it, for what its analyzers find in their files.
imports:
	$(GO) test $(PURE) -vet=off ./internal/archtest -args -targets '$(CROSS)'

vet-cross:
	@for target in linux/arm64 $(CROSS); do \
		for module in . servers; do \
			echo "vet of $$module for $$target"; \
			(cd $$module && GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) vet ./...) || exit 1; \
		done; \
	done

# Unit, model and crash tests, and the examples. The seeds of the fuzz targets are run as tests too. What vet says is known by then. Of the
# tests that may run beside others, most wait for what happens in the background: six at once.
unit:
	$(GO) test $(PURE) -vet=off -parallel 6 -timeout 30m ./...

# Three packages look at the sources only, each in one goroutine. The commands' tests are processes of one goroutine each but for the demo's:
# two minutes here, which make soak takes, as it does the tests of one goroutine that take the longest: those named here, and those that
# call inTurn. Each of them is in make unit as well. For expvar net/http would be compiled once more.
LONE = Room|DeleteRangeFull|FullDeleteRange|SparseFile|PutReader|PutReaderFails|PutReaderMemory|FailedSyncShowsNothingOlder|OverwrittenInOneTransaction|MovedRunsAreSynced|ReaderHeldForTenTurns|Arena|ArenaLeavesLittleUnused|CursorValueReader|Sizes|PageMutations|MergeModel|SetModel|Tally
RACED = $$($(GO) list ./... | grep -v -E '/(internal/(archtest|formatdoc|mutants)|cmd/flashdbm|dbm/dbmvar)$$')
race:
	CGO_ENABLED=1 $(GO) test $(PURE) -vet=off -race -short -skip '^Test($(LONE))$$' -timeout 30m $(RACED)

# Every test of the servers, then the short ones under the race detector. Packages that a race cannot be in, since nothing in their tests
# starts a goroutine, or whose single goroutine is slow with it, are left out there, as are tests of one goroutine that take long, and tests of
# one caller whose calls other tests make concurrently: ALONE, ONE_CALLER; those that mostly wait for other processes; and etcd, which takes as long to
# compile as all of the servers. make soak-servers has them all, and the tests with go-redis. Four packages at once, since their tests wait for
# each other's timeouts and sleeping threads more than they compute; first those that take a minute each, or they would run alone at the end.
ALONE = Test(Cluster|Move|Nodes)?Simulation(Repeats)?|TestPeerThatReceivesNothing|TestMessages|TestRing|TestGrowth
ONE_CALLER = TestLarge(Full)?|TestSizes|TestBatchAndScan|TestPartsAsCalls
RACED_SERVERS = $$($(GO) list ./... | grep -v -E '/(arena|circle|table|replica|ramp/protocol|fabric/(sim|shm|tcp)|daemon/(bench|flashdbmd|etcdmap))$$')
LONGEST = ./hydra/machine ./hydra ./daemon/flashdbmd ./ramp/machine
.PHONY: test-servers
test-servers:
	cd servers && $(GO) vet $(PURE) ./... && $(GO) test $(PURE) -vet=off -p 4 -timeout 30m $(LONGEST) ./...
	cd servers && CGO_ENABLED=1 $(GO) test $(PURE) -vet=off -race -short -skip 'TwoProcesses|^($(ALONE)|$(ONE_CALLER))$$' -p 4 -timeout 30m $(RACED_SERVERS)

# The fabrics with 10^6 random operations each, in one process and across two; then every test under the race detector, in full length and
# across two processes.
.PHONY: soak-servers
soak-servers:
	cd servers && $(GO) test -vet=off -timeout 20m -count 1 $$($(GO) list ./fabric/... | grep -E '/(mem|shm|tcp|sim)$$') -args -fabric.operations 1000000
	cd servers && $(GO) vet -tags clients ./daemon/... && CGO_ENABLED=1 $(GO) test -vet=off -race -tags clients -timeout 20m ./...

# The models of the log and of the page writer with many seeds, the crash and fault tests of the whole for SOAKTIME each, then every test
# in its full length under the race detector. TestAttack uses all of the API at random.
soak:
	$(GO) test -timeout 20m -run '^TestModel$$' ./logstore ./override -args -model.first $(SOAKFIRST) -model.runs $(SOAKRUNS)
	$(MAKE) crash scripts faults damage isolation CRASHTIME=$(SOAKTIME) CRASHFIRST=$(SOAKFIRST) SCRIPTTIME=5m FAULTTIME=4m DAMAGETIME=1m ISOLATIONRUNS=5
	$(GO) test -timeout 20m -run '^TestCrash(Concurrent|HeldReaders|Overwrites)$$' ./dbm -args -crash.from $(SOAKFIRST) -crash.time 3m
	$(GO) test -timeout 20m -run '^TestWholeModel$$' ./dbm -args -whole.first $(SOAKFIRST) -whole.runs 500 -whole.acts 600 -whole.time 1m
	$(GO) test -timeout 20m -run '^TestAttack$$' ./dbm -args -attack.from $(SOAKFIRST) -attack.time 3m
	CGO_ENABLED=1 $(GO) test -race -timeout 20m -run '^TestAttack$$' ./dbm -args -attack.from $(SOAKFIRST) -attack.time 3m
	CGO_ENABLED=1 $(GO) test -race -timeout 20m ./...
	$(MAKE) invariants
	$(MAKE) vet-bench
	$(MAKE) vet-cross
	$(MAKE) soak-servers
	$(MAKE) sim sim-ramp SIMRUNS=300
	$(MAKE) kill linear fuse

# The engine's tests in a build that checks its own invariants while it works: see internal/invariants.
.PHONY: invariants
invariants:
	$(GO) test -tags netgo,invariants -vet=off -parallel 6 -timeout 30m ./...

# $(call two,NAME,REGEXP,FLAGS) runs tests of package dbm with two ranges of seeds, one for each processor, and adds up their images.
# $$half in the regular expression is 0 or 1.
# A seed that fails is told with the line that runs it again.
define two
	@mkdir -p bin && $(GO) test -c -o bin/$(1).test ./dbm
	@rm -f bin/$(1).*.log; cd dbm; for half in 0 1; do \
		../bin/$(1).test -test.v -test.timeout 3h -test.run "$(2)" $(3) -crash.from $$(($(CRASHFIRST) + $$half * 500000)) >../bin/$(1).$$half.log 2>&1 & \
		pids="$$pids $$!"; \
	done; failed=0; for pid in $$pids; do wait $$pid || failed=1; done; \
	grep -hE '^    crash_[a-z]*_test.go|^--- |^panic|replay:' ../bin/$(1).*.log; \
	awk '/seeds, [0-9]+ images/ { for (i = 2; $$i !~ /^images/; i++); n += $$(i-1) } END { if (n) print "$(1):", n, "images" }' ../bin/$(1).*.log; \
	exit $$failed
endef

.PHONY: space crash scripts faults damage hostile bulk isolation
crash:
	$(call two,crash,^TestCrash$$,-crash.time $(CRASHTIME))

scripts:
	$(call two,scripts,^TestCrashEveryOperation$$,-crash.time $(SCRIPTTIME) -crash.steps $(SCRIPTSTEPS) -crash.images 1000)

faults:
	$(call two,faults,^TestCrashFaults$$,-crash.time $(FAULTTIME))

# Even ones of the four databases were closed, odd ones left by a process that died.
damage:
	$(GO) test ./cmd/flashdbm -run '^TestDamagedFiles$$' -args -damage.runs 1000
	$(call two,damage,TestCrashDamage/$$half,-crash.time $(DAMAGETIME))

# On one processor, 2 ms of its time for each file. A file that does harm is told with its seed and what was changed in it.
hostile:
	$(GO) test -timeout 24h ./dbm -run '^(TestHostile.*|TestShared.*|TestSparseFile)$$' -v -args -hostile.files $(HOSTILEFILES) -hostile.from $(HOSTILEFROM)

# 20 files a second on one processor.
.PHONY: salvage
salvage:
	$(GO) test $(PURE) -vet=off -timeout 2h ./dbm -run '^TestSalvage' -v -args -salvage.files $(SALVAGEFILES) -salvage.first $(SALVAGEFIRST)

# Transactions of 300 MiB in processes of their own, with a MemoryLimit of 64 MiB: the memory that they take, also to redo them.
bulk:
	$(GO) test -timeout 30m ./dbm -run '^TestBulkMemory$$' -v -args -bulk

isolation:
	$(GO) test -timeout 3h ./mvcc -run '^TestHistory$$' -v -args -history.runs $(ISOLATIONRUNS) -history.transactions 10000 -history.from $(ISOLATIONFIRST)
	$(GO) test -timeout 3h ./dbm -run '^TestListAppend$$' -v -args -list.runs $(ISOLATIONRUNS) -list.transactions 10000 -list.from $(ISOLATIONFIRST)

# In OPENTIMEDIR the database stays for the next time: up to 5 GB of disk. The page cache is warm, and memory for it is needed.

opentime:
	@dir=$${OPENTIMEDIR:-$$(mktemp -d)}; trap 'test -n "$$OPENTIMEDIR" || rm -rf "$$dir"' EXIT; \
	$(GO) test -c -o "$$dir/dbm.test" ./dbm && \
	"$$dir/dbm.test" -test.v -test.run '^TestOpenTime$$' -opentime.dir "$$dir" $(OPENTIMEARGS)

full:
	$(GO) test -count 1 -timeout 1h -v -run '^TestFull' ./dbm -args -full.all -full.device

space:
	$(GO) test -timeout 3h -v -run '^TestSpace' ./dbm -args -space.full

fuzz:
	@packages=$$($(GO) list ./...) || exit 1; \
	for package in $$packages; do \
		targets=$$($(GO) test -list '^Fuzz' $$package) || exit 1; \
		for target in $$(echo "$$targets" | grep '^Fuzz'); do \
			echo "$$package $$target for $(FUZZTIME)"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$package || exit 1; \
		done; \
	done

kill:
	$(GO) test -count 1 -timeout 20m -run '^TestKill$$' -v ./dbm -args -kill.rounds $(KILLROUNDS)

CLUSTERKILLS ?= 100
.PHONY: cut-cluster
cut-cluster:
	cd servers && $(GO) test $(PURE) -count 1 -timeout 3h ./daemon/flashdbmd -run '^Test(Ramp)?ClusterCut$$' -v -args -cluster.cuts $(CLUSTERKILLS) -cluster.pauses $(CLUSTERKILLS) -ramp.modes memory,async,sync

.PHONY: kill-cluster
kill-cluster:
	cd servers && $(GO) test $(PURE) -count 1 -timeout 1h ./daemon/flashdbmd -run '^Test(Ramp)?ClusterKilled$$' -v -args -cluster.kills $(CLUSTERKILLS) -cluster.stops $$(($(CLUSTERKILLS) / 2)) -ramp.modes memory,async,sync

linear:
	cd internal/linear && $(GO) test -count 1 -timeout 30m -v ./... -args -linear.histories $(HISTORIES)

fuse:
	cd internal/writeback && $(GO) test -count 1 -timeout 120m -v ./... -args -images.file $(FILEIMAGES) -images.block $(DISKIMAGES)

fuse-packages:
	apt-get install -y fuse3 e2fsprogs xfsprogs

# What is not tried stays in the document as it was.
mutants:
	$(GO) test -count 1 -timeout 120m -run '^TestMutants$$' -v ./internal/mutants -args -mutants '$(MUTANTS)' -mutants.of engine -mutants.doc docs/mutants.md

# libfabric's tcp knows no rights of regions, and hangs up without a word when it refuses something: these tests are the guest's.
VERBSTEST = CGO_ENABLED=1 $(GO) test -tags 'netgo verbs' -vet=off
GUESTOPERATIONS ?= 100000
.PHONY: flashdbmd-verbs verbs verbs-headers verbs-guest verbs-packages
verbs: verbs-headers
	cd servers && CGO_ENABLED=1 $(GO) vet -tags 'netgo verbs' ./fabric/verbs ./hydra ./ramp ./daemon/flashdbmd
	cd servers && VERBS_PROVIDER=tcp VERBS_ADDR=127.0.0.1 $(VERBSTEST) -count 1 -v ./fabric/verbs -skip '/(Bounds|Keys|CloseRegion|Flush|SendTooLarge)$$'
	cd servers && VERBS_PROVIDER=tcp VERBS_ADDR=127.0.0.1 $(VERBSTEST) -count 1 -v ./hydra ./ramp -run '^TestVerbs$$'
	cd servers && VERBS_PROVIDER=tcp $(VERBSTEST) -count 1 -v ./daemon/flashdbmd -run '^TestClusterKilled$$' -args -cluster.kills 3 -cluster.verbs 127.0.0.1

flashdbmd-verbs: verbs-headers
	cd servers && CGO_ENABLED=1 $(GO) build -tags verbs -o ../bin/flashdbmd ./daemon/flashdbmd

verbs-headers:
	@test -e /usr/include/rdma/fi_rma.h || { echo "cannot run here: libfabric's headers are missing; as root, make verbs-packages installs them" >&2; exit 1; }

verbs-guest: verbs-headers
	@mkdir -p bin/verbs-guest
	cd servers && $(VERBSTEST) -c -o ../bin/verbs-guest/verbs.test ./fabric/verbs && $(VERBSTEST) -c -o ../bin/verbs-guest/hydra.test ./hydra && $(VERBSTEST) -c -o ../bin/verbs-guest/ramp.test ./ramp && $(VERBSTEST) -c -o ../bin/verbs-guest/cluster.test ./daemon/flashdbmd
	cd servers && CGO_ENABLED=1 $(GO) build -tags 'netgo verbs' -o ../bin/verbs-guest/flashdbmd ./daemon/flashdbmd
	@cp servers/fabric/verbs/guest/tests.sh bin/verbs-guest/tests; echo $(GUESTOPERATIONS) >bin/verbs-guest/operations
	servers/fabric/verbs/guest/run.sh bin/verbs-guest

verbs-packages:
	apt-get update
	apt-get install -y --no-install-recommends libfabric-dev ibverbs-providers rdma-core iproute2 qemu-system-x86 busybox-static cpio

.PHONY: mutants-servers
mutants-servers:
	$(GO) test -count 1 -timeout 120m -run '^TestMutants$$' -v ./internal/mutants -args -mutants '$(MUTANTS)' -mutants.of servers -mutants.doc docs/mutants.md

.PHONY: full space bench bench-quick bench-report bench-install
# The databases of the benchmark are made in BENCHDIR, which should be on the file system in question. A run that was cut off goes on where
# it ended; its results are in the report's directory once all are there.
BENCHDIR    ?= bin/bench-data
BENCHROUNDS ?= 3
BENCH        = bin/bench -disk $(BENCHDIR)

bench: bench-install
	$(BENCH) -rounds $(BENCHROUNDS) -run full -out bin/full.json
	$(BENCH) -syncs -run full -out bin/full.json
	-$(BENCH) -pattern -run full -out bin/full.json
	mv bin/full.json bench/report/
	$(MAKE) bench-report

bench-quick: bench-install
	$(BENCH) -quick -run quick -out bin/quick.json
	$(BENCH) -syncs -run quick -out bin/quick.json
	-$(BENCH) -pattern -run quick -out bin/quick.json
	mv bin/quick.json bench/report/
	$(MAKE) bench-report

bench-report: bench-install
	rm -rf $(BENCHDIR)
	cd bench && ../bin/bench -report report report/*.json

bench-install:
	bench/install.sh
	mkdir -p $(BENCHDIR) bench/report
	cd bench && CGO_ENABLED=1 $(GO) build -tags cstores -ldflags "-X main.revision=$$(git describe --always --dirty=+)" -o ../bin/bench .

PREFIX ?= /usr/local

ndbm:
	$(MAKE) -C ndbm all

install-ndbm:
	$(MAKE) -C ndbm install PREFIX=$(abspath $(PREFIX))

test-ndbm:
	$(MAKE) -C ndbm check-programs

test-ndbm-packages:
	apt-get install -y --no-install-recommends dpkg-dev g++ pkg-config valgrind strace libpython3-dev libpipeline-dev zlib1g-dev flex groff \
		libgdbm-compat-dev libgdbm-dev libdb5.3-dev

clean:
	rm -rf bin

.PHONY: sim
sim:
	cd servers && GOGC=1500 $(GO) test ./shard -cpu 1 -run '^Test(Cluster|Move)?Simulation$$' -sim.runs $(SIMRUNS) -sim.seed $(SIMFIRST) -timeout 24h -v

.PHONY: sim-ramp
sim-ramp:
	cd servers && GOGC=1500 $(GO) test ./ramp -cpu 1 -run '^Test(Nodes)?Simulation$$' -sim.runs $(SIMRUNS) -sim.seed $(SIMFIRST) -timeout 24h -v

# Transactions of each durability.
SOAKRAMP ?= 5000000
.PHONY: soak-ramp
soak-ramp:
	cd servers && $(GO) test ./ramp/machine -run '^TestSoak$$' -soak.txns $(SOAKRAMP) -soak.time 24h -soak.kill 30s -soak.each 64 -timeout 48h -v
	cd servers && for mode in memory async sync; do $(GO) test $(PURE) ./daemon/flashdbmd -run '^TestRampClusterSoak$$' -timeout 48h -v -args -ramp.modes $$mode -ramp.txns $(SOAKRAMP) -ramp.time 24h || exit 1; done
