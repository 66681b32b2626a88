package main

import (
	"bufio"
	"path/filepath"
	"strings"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const plotHelp = `plot draws the file as a picture: one cell for each segment, in the order of
their places, or for several where there are too many. The upper map shows what
is in them and how much of it is alive, the lower one how long ago they were
written, counted in groups of the log. A frame marks where the log goes on.

The name of the output says which kind of picture it is: .svg, .png, or .html, a
page that shows the numbers of the cell under the mouse. It needs no network.`

func newPlotCommand(p *program) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:               "plot DATABASE --file PICTURE",
		Short:             "Draw the file's segments",
		Long:              plotHelp,
		Example:           `  flashdbm plot app.fdbm --file app.svg`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE: p.command(func(_ *cobra.Command, args []string) error {
			form := strings.ToLower(filepath.Ext(file))
			if form != ".svg" && form != ".png" && form != ".html" {
				return usagef("give --file with a name that ends in .svg, .png or .html")
			}
			picture := filePicture{name: filepath.Base(args[0])}
			err := p.inspect(args[0], func(db *dbm.DB) error {
				picture.stats, picture.segments = db.Stats(), db.Segments()
				return nil
			})
			if err != nil {
				return err
			}
			return p.withOutput(args[0], file, func(w *bufio.Writer) error {
				switch form {
				case ".png":
					return picture.writePNG(w)
				case ".html":
					return picture.writeHTML(w)
				}
				return picture.writeSVG(w)
			})
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "write the picture to `FILE`")
	return cmd
}
