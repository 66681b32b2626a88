package resp

// matches compares a string with a pattern of Redis: ? * [a-z] [^a], and \ before a character that stands for itself.
// The number of its steps is at most the product of the two lengths: once a later star has been reached, an earlier
// one is never tried again.
func matches(pattern, s []byte) bool {
	star, from := -1, 0 // the last star, and the end of the part that it stands for
	p, i := 0, 0
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, i
			p++
			continue
		}
		if p < len(pattern) {
			if n, ok := matchOne(pattern[p:], s[i]); ok {
				p += n
				i++
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, i = star+1, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne compares a byte with the first element of the pattern, and returns the element's length.
func matchOne(pattern []byte, c byte) (n int, ok bool) {
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		return matchClass(pattern, c)
	case '\\':
		if len(pattern) > 1 {
			return 2, pattern[1] == c
		}
	}
	return 1, pattern[0] == c
}

// matchClass is matchOne for a class. A class that is not closed ends with the pattern.
func matchClass(pattern []byte, c byte) (n int, ok bool) {
	p := 1
	not := p < len(pattern) && pattern[p] == '^'
	if not {
		p++
	}
	found := false
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			p++
			found = found || pattern[p] == c
		case p+2 < len(pattern) && pattern[p+1] == '-':
			low, high := min(pattern[p], pattern[p+2]), max(pattern[p], pattern[p+2])
			found = found || (low <= c && c <= high)
			p += 2
		default:
			found = found || pattern[p] == c
		}
	}
	return min(p+1, len(pattern)), found != not
}
