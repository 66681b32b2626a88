package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressLine(t *testing.T) {
	for _, test := range []struct {
		done, total int64
		want        string
	}{
		{0, 0, "load: 3s"},
		{1500, 0, "load: 1,500 records, 3s"},
		{0, 100, "load: 0 records of 100 records (0%), 3s"},
		{25, 100, "load: 25 records of 100 records (25%), 3s, 9s left"},
		{100, 100, "load: 100 records of 100 records (100%), 3s"},
		{1 << 62, 1<<63 - 1, "load: 4,611,686,018,427,387,904 records of 9,223,372,036,854,775,807 records (50%), 3s, 3s left"},
	} {
		m := &progress{label: "load", format: formatRecords, total: test.total}
		m.Add(test.done)
		require.Equal(t, test.want, m.line(3*time.Second))
	}
}

func TestNoProgress(t *testing.T) {
	var m *progress
	m.Add(1)
	m.Stop()
}
