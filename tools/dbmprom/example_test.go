package dbmprom_test

import (
	"fmt"
	"net/http/httptest"
	"strings"

	"flashdbm/dbm"
	"flashdbm/tools/dbmprom"
)

func Example() {
	metrics := dbmprom.New("fruit", nil)
	db, err := dbm.OpenMemory(&dbm.Options{Events: metrics.Event}) // or dbm.Open
	if err != nil {
		panic(err)
	}
	defer db.Close()
	metrics.Watch(db)
	if err := db.Put([]byte("apple"), []byte("red")); err != nil {
		panic(err)
	}

	// http.Handle("/metrics", dbmprom.Handler(metrics)), or prometheus.MustRegister(metrics)
	answer := httptest.NewRecorder()
	dbmprom.Handler(metrics).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "flashdbm_records") {
			fmt.Print(line)
		}
	}
	// Output: flashdbm_records{database="fruit"} 1
}
