package main

import (
	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

// completionLimit is the most keys that a shell is given.
const completionLimit = 200

// completeDatabase completes a database path, the only argument of a command.
func completeDatabase(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// completeKey completes a database path and then up to maxKeys keys of it.
// Keys that a shell would have to escape are left out. After any error, for
// example of a locked database, there are no suggestions.
func (p *program) completeKey(n *notation, maxKeys int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		if len(args) > maxKeys || n.hex || n.base64 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var keys []cobra.Completion
		_ = p.read(cmd.Context(), args[0], func(tx *dbm.Tx) error {
			for key := range tx.Prefix([]byte(begun)) {
				if len(keys) == completionLimit {
					return nil
				}
				if plain(key) {
					keys = append(keys, string(key))
				}
			}
			return nil
		})
		return keys, cobra.ShellCompDirectiveNoFileComp
	}
}
