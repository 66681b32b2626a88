package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// settings are the flags of a command and the origin of each value: the command line, otherwise the environment,
// otherwise the file.
type settings struct {
	flags  *flag.FlagSet
	origin map[string]string // by flag: the words with which an error about the value names its origin
}

// wrong returns an error about the value of a setting. It wraps errUsage.
func (s *settings) wrong(setting, format string, a ...any) error {
	where := s.origin[setting]
	if where == "" {
		where = "--" + setting
	}
	return fmt.Errorf("%s: %s (%w)", where, fmt.Sprintf(format, a...), errUsage)
}

// set sets a flag that has no value yet.
func (s *settings) set(name, value, origin string) error {
	if s.origin[name] != "" {
		return nil
	}
	s.origin[name] = origin
	if err := s.flags.Set(name, value); err != nil {
		return s.wrong(name, "%q is not what this setting takes: %v", value, err)
	}
	return nil
}

// fromFlags notes the flags that the command line has set.
func (s *settings) fromFlags() {
	s.flags.Visit(func(x *flag.Flag) { s.origin[x.Name] = "--" + x.Name })
}

// fromEnvironment sets flags from environment variables: FLASHDBMD_MAX_FILE is --max-file.
func (s *settings) fromEnvironment(env func(string) (string, bool)) (err error) {
	s.flags.VisitAll(func(x *flag.Flag) {
		name := "FLASHDBMD_" + strings.ToUpper(strings.ReplaceAll(x.Name, "-", "_"))
		if value, ok := env(name); ok && err == nil {
			err = s.set(x.Name, value, name)
		}
	})
	return err
}

// fromFile sets flags from a TOML file: max-file = 100. Errors begin with the file's name and the line.
func (s *settings) fromFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return s.wrong("config", "%v", err)
	}
	var values map[string]any
	if err := toml.Unmarshal(text, &values); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			row, column := at.Position()
			return fmt.Errorf("%s:%d:%d: %s (%w)", path, row, column, strings.TrimPrefix(at.Error(), "toml: "), errUsage)
		}
		return fmt.Errorf("%s: %w (%w)", path, err, errUsage)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		origin := fmt.Sprintf("%s:%d: %s", path, lineOf(string(text), name), name)
		if name == "config" || s.flags.Lookup(name) == nil {
			return fmt.Errorf("%s: there is no such setting; flashdbmd serve --help lists them (%w)", origin, errUsage)
		}
		switch values[name].(type) {
		case string, int64, bool:
		default:
			return fmt.Errorf("%s: want a string in quotes, a whole number, true or false (%w)", origin, errUsage)
		}
		if err := s.set(name, fmt.Sprint(values[name]), origin); err != nil {
			return err
		}
	}
	if values["password"] != nil {
		return s.secret(path)
	}
	return nil
}

// secret returns an error if others can read the file.
func (s *settings) secret(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return s.wrong("config", "%v", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s: has a password, and others can read the file (mode %#o); chmod 600 it (%w)", path, info.Mode().Perm(), errUsage)
	}
	return nil
}

// lineOf returns the number of the line that sets a key or begins its table, 1 if no line does.
func lineOf(text, key string) int {
	sets := regexp.MustCompile(`^\s*(\[+\s*)?["']?` + regexp.QuoteMeta(key) + `["']?\s*[=.\]]`)
	for i, line := range strings.Split(text, "\n") {
		if sets.MatchString(line) {
			return i + 1
		}
	}
	return 1
}
