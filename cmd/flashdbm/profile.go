package main

import (
	"maps"
	"os"
	"slices"

	"github.com/pkg/profile"
)

// profileMode is one choice of --profile and the file it is written to.
type profileMode struct {
	option func(*profile.Profile)
	file   string
}

var profileModes = map[string]profileMode{
	"cpu":   {profile.CPUProfile, "cpu.pprof"},
	"mem":   {profile.MemProfile, "mem.pprof"},
	"block": {profile.BlockProfile, "block.pprof"},
	"mutex": {profile.MutexProfile, "mutex.pprof"},
	"trace": {profile.TraceProfile, "trace.out"},
}

func profileNames() []string {
	return slices.Sorted(maps.Keys(profileModes))
}

// startProfile starts the named profile and returns the function that ends
// and writes it. An empty name means none.
func startProfile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	mode, ok := profileModes[name]
	if !ok {
		return nil, usagef("there is no profile %q; choose one of %v", name, profileNames())
	}
	// The profile package ends the process if it cannot create its file, with the exit code that means "not found"
	// here. So the file is created here first.
	file, err := os.Create(mode.file)
	if err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	// The shutdown hook of the profile package would end the process on an interrupt, before the command has closed
	// its database.
	return profile.Start(mode.option, profile.ProfilePath("."), profile.NoShutdownHook).Stop, nil
}
