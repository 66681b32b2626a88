package dbm

import (
	"errors"

	"flashdbm/internal/backup"
)

// ErrToken: a token belongs to another database, or names a moment that does not fit. The text says
// what to do.
var ErrToken = errors.New("flashdbm: the token does not fit")

// A Token names the moment of a backup of one database. It stays valid for the lifetime of the database file.
// Tokens are compared with ==; String and ParseToken convert a token to text and back. The zero Token names no
// moment.
type Token struct{ is backup.Token }

// String returns the token as one word of letters and digits.
func (t Token) String() string { return t.is.String() }

// ParseToken parses a result of Token.String.
func ParseToken(text string) (Token, error) {
	t, err := backup.ParseToken(text)
	return Token{t}, err
}
