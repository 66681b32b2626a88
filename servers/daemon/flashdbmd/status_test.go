package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A reader is a person who has seen enough once a certain text appears.
type reader struct {
	strings.Builder
	until string
}

var errEnough = errors.New("enough")

func (r *reader) Write(b []byte) (int, error) {
	if strings.Contains(r.String(), r.until) {
		return 0, errEnough
	}
	return r.Builder.Write(b)
}

// TestWatchGoesOn: status --watch of a node that is started again shows that the node is away, and then that it is
// back.
func TestWatchGoesOn(t *testing.T) {
	defer func(was time.Duration) { watchEvery = was }(watchEvery)
	watchEvery = time.Millisecond
	asked := 0
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"pid": %d}`, 1000+asked)
	}))
	defer node.Close()
	out := &reader{until: "1003"}
	err := runStatus([]string{"--http", node.Listener.Addr().String(), "--watch"}, func(string) (string, bool) { return "", false }, out)
	assert.ErrorIs(t, err, errEnough)
	assert.Regexp(t, `(?s)1001.*503.*1003`, out.String())
}
