package dbm

import (
	"errors"

	"flashdbm/internal/backup"
)

// ErrToken says that a token is of another database, or of a moment that does not fit; the text says what to do.
var ErrToken = errors.New("flashdbm: the token does not fit")

// A Token names the moment of a backup of one database. It stays good for as long as the database file is used, however old it gets. It
// compares with ==, and String and ParseToken make text of it and back. The zero Token names no moment.
type Token struct{ is backup.Token }

// String returns the token as a word of letters and digits.
func (t Token) String() string { return t.is.String() }

// ParseToken reads what Token.String has returned.
func ParseToken(text string) (Token, error) {
	t, err := backup.ParseToken(text)
	return Token{t}, err
}
