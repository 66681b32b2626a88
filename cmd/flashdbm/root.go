package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// program is one run of the command line: its streams, and the flags that every command has. One goroutine uses it,
// except for the streams.
type program struct {
	ctx            context.Context // ends with the first signal
	stdin          *os.File
	stdout, stderr *os.File

	texts firstError // output of help, version and completion

	wait    time.Duration // --wait: how long to wait for another process's lock
	beside  bool          // --beside: read while another process writes
	profile string        // --profile: one of profileModes, or empty

	began time.Time // when the transaction of read began, by the clock by which records expire

	// running is set when a command's own code starts. An error before that
	// comes from parsing the command line, so it is a usage error.
	running bool
}

const rootHelp = `flashdbm reads and writes flashdbm databases: ordered keys and values in one file.

Keys and values are text; with --hex or --base64 they are encoded, on the command
line and in the output. Files, standard input and the output of get to a pipe are
always the plain bytes. Use "--" before a key that
begins with a dash.

Exit codes: 0 done or found, 1 not found, 2 wrong usage, 3 any other error.`

func newRootCommand(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:     "flashdbm",
		Short:   "Read, write, check, compact, dump and load flashdbm databases",
		Long:    rootHelp,
		Version: version(),
		// finish prints errors, in one line and with the exit code that fits.
		SilenceErrors:              true,
		SilenceUsage:               true,
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
		Args:                       unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(p.stderr)
			if err := cmd.Help(); err != nil {
				return err
			}
			return usagef("no command given")
		},
	}
	root.SetIn(p.stdin)
	p.texts.out = p.stdout
	root.SetOut(&p.texts)
	root.SetErr(p.stderr)

	flags := root.PersistentFlags()
	flags.DurationVar(&p.wait, "wait", 0, "wait up to `TIME`, for example 30s, for a database that another process has open")
	flags.BoolVar(&p.beside, "beside", false, "read a database that another process has open, and may be writing")
	flags.StringVar(&p.profile, "profile", "", "write a profile of this `KIND` to the current directory: "+strings.Join(profileNames(), ", "))
	// The name of a registered flag cannot be unknown.
	_ = root.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(profileNames(), cobra.ShellCompDirectiveNoFileComp))

	root.AddCommand(
		newGetCommand(p), newPutCommand(p), newDelCommand(p), newHasCommand(p), newTTLCommand(p),
		newListCommand(p), newStatCommand(p), newPlotCommand(p), newCheckCommand(p), newSalvageCommand(p), newInspectCommand(p),
		newCompactCommand(p), newBackupCommand(p), newRestoreCommand(p), newFollowCommand(p), newDumpCommand(p), newLoadCommand(p), newKeyspacesCommand(p),
		newBenchCommand(p), newDemoCommand(p), newDemoWriterCommand(p),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.RunE, cmd.Run = help, nil
		case "completion":
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, noShell
		}
	}
	return root
}

// help shows the help of the command that its arguments name.
func help(cmd *cobra.Command, args []string) error {
	named, rest, err := cmd.Root().Find(args)
	switch {
	case err == nil && named != nil && len(rest) == 0:
	case len(args) > 1:
		return usagef("there is no command %q", strings.Join(args, " "))
	default:
		return unknownCommand(cmd.Root(), args)
	}
	named.InitDefaultHelpFlag() // otherwise the text lacks it
	return named.Help()
}

// noShell is the completion command without a valid name of a shell.
func noShell(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("no shell given: bash, fish, powershell or zsh")
	}
	return usagef("there is no completion for %q: bash, fish, powershell or zsh", args[0])
}

// unknownCommand accepts no arguments: an argument that reaches the root is the name of no command.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("there is no command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return usagef("there is no command %q", args[0])
}

// takes accepts from least to most arguments.
func takes(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			count, verb := fmt.Sprintf("%d arguments", len(args)), "do"
			if len(args) == 1 {
				count, verb = "1 argument", "does"
			}
			return usagef("%s %s not fit %q", count, verb, cmd.UseLine())
		}
		return nil
	}
}

// firstError keeps the first error of writing, because cobra ignores such
// errors.
type firstError struct {
	out io.Writer
	err error
}

func (w *firstError) Write(b []byte) (int, error) {
	n, err := w.out.Write(b)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

// withoutBackquotes removes the backquotes, which mark a flag's operand for the help text, from the descriptions
// that a shell shows.
func withoutBackquotes(root *cobra.Command) {
	strip := func(flag *pflag.Flag) { flag.Usage = strings.ReplaceAll(flag.Usage, "`", "") }
	root.PersistentFlags().VisitAll(strip)
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(strip)
	}
}

// command adapts fn to cobra. It notes that parsing of the command line is done, and runs fn under the requested
// profile.
func (p *program) command(fn func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		if p.wait < 0 {
			return usagef("--wait must not be negative")
		}
		p.running = true
		stop, err := startProfile(p.profile)
		if err != nil {
			return err
		}
		defer stop()
		return fn(cmd, args)
	}
}

// version returns the module version that the Go tool recorded in the binary.
func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok || build.Main.Version == "" {
		return "(unknown)"
	}
	return fmt.Sprintf("%s %s", build.Main.Version, build.GoVersion)
}
