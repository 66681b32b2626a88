package btree

import "errors"

// ErrMalformed is what errors about pages and trees that break the format wrap. Errors of a Pager are passed on as they are.
var ErrMalformed = errors.New("malformed tree")
