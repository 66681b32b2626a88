// Command bench compares flashdbm with other embedded stores, and with what the device and the memory do without any. README.md says
// how to run it and how to add a store or a workload.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	var (
		p       plan
		work    = flag.String("work", "", "workloads, comma-separated names or beginnings of names; empty = all")
		stores  = flag.String("store", "", "stores, comma-separated; empty = all that the workload is for")
		report  = flag.String("report", "", "write the report of the result files named as arguments into this directory, and run nothing")
		note    = flag.String("note", "", "a remark for the head of the report")
		list    = flag.Bool("list", false, "list workloads and stores")
		cell    = flag.String("cell", "", "run one cell (used by the runner)")
		syncs   = flag.Bool("syncs", false, "count the system calls that sync, by strace, instead of measuring")
		pattern = flag.Bool("pattern", false, "record where on a loop device stores write over time, instead of measuring; for root")
		scratch = flag.String("disk", ".", "directory for databases on the disk's file system")
	)
	flag.StringVar(&p.memDir, "mem", "/dev/shm", "directory for databases in memory")
	flag.StringVar(&p.name, "run", "adhoc", "name of the run, under which its results are kept")
	flag.StringVar(&p.results, "out", "", "file to add the results to; cells that it has are not run again")
	flag.StringVar(&p.profile, "profile", "", "directory for a CPU profile of the measured part of each cell")
	flag.IntVar(&p.rounds, "rounds", 1, "rounds of all cells")
	flag.DurationVar(&p.until, "for", 0, "begin no cell after so long; the same command then goes on where it ended")
	flag.Float64Var(&p.calm, "calm", 0, "run a cell again, twice at most, if others took a larger share of the processors; 0 = don't")
	flag.BoolVar(&p.quick, "quick", false, "a tenth of the records and of the time")
	flag.Parse()

	switch {
	case *cell != "":
		runCell(*cell)
		return
	case *list:
		listAll()
		return
	case *report != "":
		exit(writeReport(*report, *note, flag.Args()))
		return
	}
	var err error
	if p.works, err = worksMatching(*work); err != nil {
		fatalf("%v", err)
	}
	if *stores != "" {
		p.stores = strings.Split(*stores, ",")
		for _, name := range p.stores {
			if _, err := engineNamed(name); err != nil {
				fatalf("%v", err)
			}
		}
	}
	if p.diskDir, err = filepath.Abs(*scratch); err != nil {
		fatalf("%v", err)
	}
	runtime.LockOSThread() // the thread whose end would end the cells
	p.baseDir = filepath.Join(p.diskDir, "bench-bases")
	switch {
	case *syncs:
		exit(p.countSyncs())
		return
	case *pattern:
		exit(p.recordPatterns())
		return
	}
	exit(p.run())
}

// exit ends the program with 3 if there is work left, 1 on another error.
func exit(err error) {
	switch {
	case errors.Is(err, errUnfinished):
		os.Exit(3)
	case err != nil:
		fatalf("%v", err)
	}
}

func listAll() {
	fmt.Println("workloads:")
	for _, w := range works {
		fmt.Printf("  %-16s %s\n", w.Name, w.Title)
	}
	fmt.Println("stores:")
	for _, name := range engineNames(true) {
		fmt.Printf("  %-22s %s; %s\n", name, engines[name].Version(), engines[name].Settings)
	}
}
