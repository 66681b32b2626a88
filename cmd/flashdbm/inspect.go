package main

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"flashdbm/dbm"
	"flashdbm/internal/inspect"
	"flashdbm/internal/pagefile"
	"flashdbm/logstore/vfs"

	"github.com/spf13/cobra"
)

const inspectHelp = `inspect shows the contents of a database file, in the words of docs/format.md. The file may be damaged; it is only read.

  inspect DATABASE              the file as a whole, superblocks, newest checkpoint
  inspect DATABASE superblocks  both superblocks
  inspect DATABASE page N       page N of 4,096 bytes: its mux area, and the node,
                                redo records or stream in it
  inspect DATABASE node NAME    the tree page that a name leads to, for example 17
                                or 0xc000000000000001, the root
  inspect DATABASE key KEY      the path from the root to a key, and its records
                                in the log
  inspect DATABASE segment N    the header of segment N and its pages
  inspect DATABASE log          the groups of the log, in their order; see --from
  inspect DATABASE table        the translation table of the newest checkpoint
  inspect DATABASE space        the space map of the newest checkpoint

Values are cut after 40 bytes; --values shows all of them. All but page, segment
and superblocks first read the whole file.`

// inspectWords are the things that inspect shows, and whether an operand follows.
var inspectWords = map[string]bool{
	"superblocks": false, "page": true, "node": true, "key": true, "segment": true, "log": false, "table": false, "space": false,
}

type inspectCommand struct {
	form   notation
	json   bool
	values bool
	from   uint64
	limit  int
}

func newInspectCommand(p *program) *cobra.Command {
	var c inspectCommand
	cmd := &cobra.Command{
		Use:   "inspect DATABASE [WHAT [WHICH]]",
		Short: "Show pages, nodes, segments and the log of a file",
		Long:  inspectHelp,
		Example: `  flashdbm inspect app.fdbm key user/17
  flashdbm inspect app.fdbm log --from 4711 --limit 10
  flashdbm inspect app.fdbm page 123 --json`,
		Args: takes(1, 3),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			switch len(args) {
			case 0:
				return nil, cobra.ShellCompDirectiveDefault
			case 1:
				return []string{"superblocks", "page", "node", "key", "segment", "log", "table", "space"}, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: p.command(func(cmd *cobra.Command, args []string) error { return c.run(p, cmd, args) }),
	}
	c.form.addFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&c.json, "json", false, "print a JSON object for each part")
	flags.BoolVar(&c.values, "values", false, "show values whole")
	flags.Uint64Var(&c.from, "from", 1, "of the log: begin with group `N`")
	flags.IntVar(&c.limit, "limit", 0, "of the log: at most `N` groups; 0 for all")
	return cmd
}

func (c *inspectCommand) run(p *program, cmd *cobra.Command, args []string) (err error) {
	what, which := "", ""
	if len(args) > 1 {
		what = args[1]
		needs, ok := inspectWords[what]
		switch {
		case !ok:
			return usagef("inspect shows no %q: superblocks, page, node, key, segment, log, table or space", what)
		case needs && len(args) < 3:
			return usagef("inspect %s which one? for example: %s", what, map[string]string{
				"page": "page 17", "node": "node 0xc000000000000001", "key": "key user/17", "segment": "segment 0"}[what])
		case !needs && len(args) > 2:
			return usagef("inspect %s takes no operand %q", what, args[2])
		}
		if needs {
			which = args[2]
		}
	}
	if what != "log" && (cmd.Flags().Changed("from") || cmd.Flags().Changed("limit")) {
		return usagef("--from and --limit are of inspect DATABASE log")
	}
	if c.limit < 0 {
		return usagef("--limit must not be negative")
	}
	if p.beside {
		return usagef("inspect shows no file that is being written: leave out --beside")
	}
	var number uint64
	if what == "page" || what == "node" || what == "segment" {
		if number, err = strconv.ParseUint(which, 0, 64); err != nil {
			return usagef("%q is no number of a %s: give it in decimals, or with 0x in hexadecimals", which, what)
		}
		if what == "segment" && number > 1<<32-1 {
			return usagef("there are no segments from 2^32 on")
		}
	}
	key, err := c.form.parse("key", which)
	if err != nil && what == "key" {
		return err
	}
	f, err := pagefile.Open(cmd.Context(), vfs.OS(), args[0], p.wait)
	if errors.Is(err, dbm.ErrLocked) {
		return fmt.Errorf("%s is open in a process that may write: stop that first, or wait for it with --wait 30s", args[0])
	} else if err != nil {
		return explainMissing(args[0], err)
	}
	defer f.Close()
	return p.withOutput(args[0], "", func(w *bufio.Writer) error {
		x := inspect.New(f, func(part inspect.Part) error {
			if c.json {
				return printJSON(w, c.object(&part))
			}
			c.print(w, &part, "")
			return nil
		})
		ctx := cmd.Context()
		switch what {
		case "":
			return x.File(ctx)
		case "superblocks":
			return x.Superblocks()
		case "page":
			return x.Page(ctx, number)
		case "node":
			return x.Node(ctx, number)
		case "key":
			return x.Key(ctx, key)
		case "segment":
			return x.Segment(ctx, uint32(number))
		case "log":
			return x.Log(ctx, c.from, c.limit)
		case "table":
			return x.Table(ctx)
		}
		return x.Space(ctx)
	})
}

// shownValue is how many bytes of a value are shown without --values.
const shownValue = 40

// print writes a part as lines, with its own parts indented.
func (c *inspectCommand) print(w *bufio.Writer, part *inspect.Part, indent string) {
	if part.Line {
		fields := make([]string, len(part.Fields))
		for i, f := range part.Fields {
			fields[i] = f.Name + " " + c.text(&f)
		}
		fmt.Fprintf(w, "%s%s: %s\n", indent, part.Name, strings.Join(fields, ", "))
		return
	}
	fmt.Fprintf(w, "%s%s\n", indent, part.Name)
	indent += "  "
	for _, f := range part.Fields {
		fmt.Fprintf(w, "%s%s: %s\n", indent, f.Name, c.text(&f))
	}
	for i := range part.Parts {
		c.print(w, &part.Parts[i], indent)
	}
}

func (c *inspectCommand) text(f *inspect.Field) string {
	b, ok := f.Value.([]byte)
	switch {
	case !ok:
		return fmt.Sprint(f.Value)
	case f.Name == "value" && !c.values && len(b) > shownValue:
		return fmt.Sprintf("%s... (%d bytes)", c.form.format(b[:shownValue]), len(b))
	}
	return c.form.format(b)
}

// object returns the JSON object of a part. Names of fields are in lower case, with _ for other characters than
// letters and digits.
func (c *inspectCommand) object(part *inspect.Part) map[string]any {
	object := map[string]any{"part": part.Name}
	for _, f := range part.Fields {
		name := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, strings.ToLower(strings.ReplaceAll(f.Name, ",", "")))
		b, ok := f.Value.([]byte)
		switch {
		case !ok:
			object[name] = f.Value
		case f.Name == "value" && !c.values && len(b) > shownValue:
			object["value_bytes"] = len(b)
			c.form.addTo(object, "value_begins", b[:shownValue])
		default:
			c.form.addTo(object, name, b)
		}
	}
	if len(part.Parts) > 0 {
		parts := make([]map[string]any, len(part.Parts))
		for i := range part.Parts {
			parts[i] = c.object(&part.Parts[i])
		}
		object["parts"] = parts
	}
	return object
}
