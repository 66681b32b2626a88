package btree

import "errors"

// ErrMalformed is wrapped by all errors about pages and trees that break the format. Errors of a Pager are returned
// unchanged.
var ErrMalformed = errors.New("malformed tree")
