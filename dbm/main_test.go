package dbm

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// TestMain keeps events of the tests' databases out of the output: without Options.Events, they go to the default
// logger.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(withoutEvents{slog.NewTextHandler(os.Stderr, nil)}))
	os.Exit(m.Run())
}

// withoutEvents drops what LogEvents writes.
type withoutEvents struct{ slog.Handler }

func (h withoutEvents) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "flashdbm: ") {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}
