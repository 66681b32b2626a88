package hydra

import "errors"

func isEither(err error, list ...error) bool {
	for _, e := range list {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

var errTest = errors.New("test")
