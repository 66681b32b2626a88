package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	"flashdbm/servers/daemon/resp"
	"flashdbm/servers/hydra"
	"flashdbm/servers/hydra/machine"
)

// An admin answers questions about the process over HTTP.
type admin struct {
	c      *config
	began  time.Time
	node   *machine.Node
	client *hydra.Client
	server *resp.Server
	resp   string // address
}

// serve serves status, metrics, health and profiles until the listener is closed.
func (a *admin) serve(l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.Encode(a.status())
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.node.Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		writeMetrics(w, a.client.Stats(), a.server.Counters(), a.server.Connections())
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return s.Serve(l)
}

// writeMetrics writes counters in the text format of Prometheus.
func writeMetrics(w io.Writer, client hydra.Stats, did resp.Counters, connections int) {
	counter := func(name, help string, value any) {
		fmt.Fprintf(w, "# HELP flashdbmd_%s %s\n# TYPE flashdbmd_%s counter\nflashdbmd_%s %v\n", name, help, name, name, value)
	}
	fmt.Fprintf(w, "# HELP flashdbmd_connections Connections of RESP.\n# TYPE flashdbmd_connections gauge\nflashdbmd_connections %d\n", connections)
	counter("connections_accepted_total", "Connections of RESP that were accepted.", did.Accepted)
	counter("connections_rejected_total", "Connections of RESP that were refused.", did.Rejected)
	counter("errors_total", "Answers of RESP that were errors.", did.Errors)
	counter("protocol_errors_total", "Connections of RESP that were ended for breaking the protocol.", did.ProtocolErrors)
	counter("received_bytes_total", "Bytes of RESP received.", did.BytesIn)
	counter("sent_bytes_total", "Bytes of RESP sent.", did.BytesOut)
	counter("requests_total", "Requests of RESP to shards.", client.Local)
	fmt.Fprint(w, "# HELP flashdbmd_commands_total Commands of RESP.\n# TYPE flashdbmd_commands_total counter\n")
	for _, name := range slices.Sorted(maps.Keys(did.Commands)) {
		fmt.Fprintf(w, "flashdbmd_commands_total{command=%q} %d\n", name, did.Commands[name])
	}
}
