package resp

import "bytes"

// inline parses a command that is a line of words, as people type it.
func (d *reader) inline() (args [][]byte, ok bool, err error) {
	rest := d.buf[d.r:d.w]
	i := bytes.IndexByte(rest[d.pos:], '\n')
	if i < 0 {
		d.pos = len(rest) // the bytes that were searched
		if len(rest) > maxInline || (d.anonymous && len(rest) > anonBulk) {
			return nil, false, protocolError("too big inline request")
		}
		return nil, false, nil
	}
	i += d.pos
	if i > maxInline {
		return nil, false, protocolError("too big inline request")
	}
	d.pos = i + 1
	d.args, ok = splitWords(bytes.TrimSuffix(rest[:i], []byte("\r")), d.args[:0])
	d.consume()
	switch {
	case !ok:
		return nil, false, protocolError("unbalanced quotes in request")
	case d.anonymous && len(d.args) > anonArgs:
		return nil, false, protocolError("unauthenticated multibulk length")
	}
	return d.args, true, nil
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// splitWords appends the words of a line. In double quotes, \n \r \t \b \a \xHH stand for bytes; in single quotes
// only \' does.
func splitWords(line []byte, words [][]byte) ([][]byte, bool) {
	for {
		for len(line) > 0 && isSpace(line[0]) {
			line = line[1:]
		}
		if len(line) == 0 {
			return words, true
		}
		var word []byte
		var ok bool
		if word, line, ok = nextWord(line); !ok {
			return words, false
		}
		words = append(words, word)
	}
}

func nextWord(line []byte) (word, rest []byte, ok bool) {
	word = []byte{}
	for len(line) > 0 && !isSpace(line[0]) {
		quote := line[0]
		line = line[1:]
		if quote != '"' && quote != '\'' {
			word = append(word, quote)
			continue
		}
		for {
			if len(line) == 0 {
				return nil, nil, false
			}
			c := line[0]
			line = line[1:]
			if c == quote {
				break
			}
			if c == '\\' && len(line) > 0 && (quote == '"' || line[0] == '\'') {
				c, line = unescape(line, quote)
			}
			word = append(word, c)
		}
		if len(line) > 0 && !isSpace(line[0]) {
			return nil, nil, false // a word ends with its closing quote
		}
	}
	return word, line, true
}

// unescape returns the byte that an escape stands for. line is what follows the backslash, not empty.
func unescape(line []byte, quote byte) (byte, []byte) {
	c := line[0]
	if quote == '"' {
		switch c {
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'b':
			c = '\b'
		case 'a':
			c = '\a'
		case 'x':
			if len(line) > 2 {
				high, low := unhex(line[1]), unhex(line[2])
				if high >= 0 && low >= 0 {
					return byte(high<<4 | low), line[3:]
				}
			}
		}
	}
	return c, line[1:]
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
