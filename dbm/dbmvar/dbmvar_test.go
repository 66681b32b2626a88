package dbmvar

import (
	"encoding/json"
	"expvar"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/dbm"
)

func newDB(t *testing.T, records int) *dbm.DB {
	t.Helper()
	db, err := dbm.OpenMemory(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for i := range records {
		require.NoError(t, db.Put(fmt.Append(nil, i), nil))
	}
	return db
}

// shown returns what HTTP clients see of a name.
func shown(t *testing.T, name string) (s dbm.Stats) {
	t.Helper()
	answer := httptest.NewRecorder()
	expvar.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/debug/vars", nil))
	all := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &all))
	require.NoError(t, json.Unmarshal(all[name], &s))
	return s
}

func TestPublish(t *testing.T) {
	first := newDB(t, 2)
	require.NoError(t, Publish("store", first))
	require.EqualValues(t, 2, shown(t, "store").Records)
	require.NoError(t, first.Put([]byte("more"), nil))
	require.EqualValues(t, 3, shown(t, "store").Records)
	require.EqualValues(t, 3, shown(t, "store").Commits)

	require.NoError(t, Publish("store", newDB(t, 5)), "opened again")
	require.EqualValues(t, 5, shown(t, "store").Records)
	require.NoError(t, Publish("other", first))
	require.NoError(t, first.Close())
	require.Zero(t, shown(t, "other"), "of a closed database")
	require.EqualValues(t, 5, shown(t, "store").Records)
}

func TestPublishTakenName(t *testing.T) {
	require.ErrorIs(t, Publish("memstats", newDB(t, 0)), ErrTaken)
}

func ExamplePublish() {
	db, err := dbm.OpenMemory(nil)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if err := Publish("fruit", db); err != nil {
		panic(err)
	}
	if err := db.Put([]byte("apple"), []byte("red")); err != nil {
		panic(err)
	}
	var stats dbm.Stats
	if err := json.Unmarshal([]byte(expvar.Get("fruit").String()), &stats); err != nil {
		panic(err)
	}
	fmt.Println(stats.Records, "record")
	// Output: 1 record
}
