package store

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// announcedFile notes the keys of each Prefetch, and of each Get.
type announcedFile struct {
	File
	told [][]string
	got  []string
}

func (f *announcedFile) Prefetch(keys []Fetched) error {
	var list []string
	for i := range keys {
		list = append(list, string(keys[i].Key))
	}
	f.told = append(f.told, list)
	return f.File.Prefetch(keys)
}

func (f *announcedFile) Get(hash uint64, key []byte) (Record, bool, error) {
	f.got = append(f.got, string(key))
	return f.File.Get(hash, key)
}

// TestFetchesTogether: if several keys wait, up to fetchAtOnce of them are announced to the file before the first one
// is looked up. A single key is only looked up. Each fetch is answered once, and forgotten fetches are not answered.
func TestFetchesTogether(t *testing.T) {
	f, err := OpenFile(filepath.Join(t.TempDir(), "f"), 0)
	require.NoError(t, err)
	a := &announcedFile{File: f}
	s, err := Open(a, func() {}, time.Millisecond)
	require.NoError(t, err)
	defer s.Close()
	const records = 2*fetchAtOnce + 10
	for i := range uint64(records) {
		s.Append(Entry{Seq: i + 1, Hash: i, Record: Record{Version: i, Key: fmt.Appendf(nil, "%d", i), Value: fmt.Appendf(nil, "value %d", i)}})
	}
	s.Gather(0)
	step := func(f func(time.Time) (bool, time.Time)) (n int) {
		for worked := true; worked; n++ {
			worked, _ = f(time.Now())
		}
		return n - 1
	}
	step(s.StepCommitter)
	require.EqualValues(t, records, s.Applied())

	s.Fetch(5, []byte("5"))
	require.Equal(t, 2, step(s.StepFetcher))
	require.Empty(t, a.told)
	require.Equal(t, "value 5", string(s.Fetches()[0].Value))

	for i := range uint64(records) {
		s.Fetch(i, fmt.Appendf(nil, "%d", i))
	}
	s.StepFetcher(time.Now())
	require.Len(t, a.told, 1)
	require.Len(t, a.told[0], fetchAtOnce)
	require.Len(t, a.got, 2)
	step(s.StepFetcher)
	require.Len(t, a.told, 3)
	require.Len(t, a.told[2], records-2*fetchAtOnce)
	answers := s.Fetches()
	require.Len(t, answers, records)
	for i, x := range answers {
		assert.True(t, x.Found)
		assert.Equal(t, fmt.Sprintf("value %d", i), string(x.Value))
	}

	s.Fetch(1, []byte("1"))
	s.Fetch(2, []byte("2"))
	s.StepFetcher(time.Now()) // one of them is looked up, the other one waits for its turn
	s.ForgetFetches()
	s.Fetch(3, []byte("3"))
	step(s.StepFetcher)
	answers = s.Fetches()
	require.Len(t, answers, 1)
	require.Equal(t, "value 3", string(answers[0].Value))
}
