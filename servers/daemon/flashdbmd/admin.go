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

// An admin answers requests over HTTP about the process.
type admin struct {
	c      *config
	began  time.Time
	node   *machine.Node
	client *hydra.Client
	server *resp.Server
	resp   string // address of RESP
}

// serve serves status, metrics, health and profiles until the listener is closed. If owner is set, every client of
// the listener may use the directory, and serve serves backups too.
func (a *admin) serve(l net.Listener, owner bool) error {
	mux := http.NewServeMux()
	if owner {
		mux.HandleFunc("GET /backup/{shard}", a.backup)
	}
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
		writeShardMetrics(w, a.node.Status())
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

// writeShardMetrics writes the metrics on which Prometheus raises alarms: servers/deploy/alerts.yml has the rules.
func writeShardMetrics(w io.Writer, s machine.Status) {
	gauge := func(name, help string, value func(x *machine.ShardStatus) (float64, bool)) {
		fmt.Fprintf(w, "# HELP flashdbmd_shard_%s %s\n# TYPE flashdbmd_shard_%s gauge\n", name, help, name)
		for i := range s.Shards {
			if v, ok := value(&s.Shards[i]); ok {
				fmt.Fprintf(w, "flashdbmd_shard_%s{shard=\"%d\"} %v\n", name, s.Shards[i].Shard, v)
			}
		}
	}
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	primary := func(x *machine.ShardStatus) bool { return x.Role == "primary" }
	gauge("serving", "1 if this node serves the shard.", func(x *machine.ShardStatus) (float64, bool) { return truth(x.Serving), true })
	gauge("failed", "1 if the shard has failed here: the node has to be started again.", func(x *machine.ShardStatus) (float64, bool) { return truth(x.Failure != ""), true })
	gauge("backlog_bytes", "Bytes on their way to the file.", func(x *machine.ShardStatus) (float64, bool) { return float64(x.Backlog), true })
	if s.Node == "" {
		return
	}
	gauge("term", "Term of the shard's reign, as this node knows it. It rises with each failover.", func(x *machine.ShardStatus) (float64, bool) { return float64(x.Term), true })
	gauge("in_sync", "Copies that have all that was acknowledged, as the primary knows.", func(x *machine.ShardStatus) (float64, bool) { return float64(len(x.Set)), primary(x) })
	gauge("missing_copies", "Copies that the shard should have, and lacks.", func(x *machine.ShardStatus) (float64, bool) {
		return float64(max(0, s.Replicas-len(x.Set))), primary(x)
	})
	gauge("lag_entries", "Entries that the copy which is furthest behind has not got.", func(x *machine.ShardStatus) (float64, bool) {
		most := uint64(0)
		for _, m := range x.Members {
			most = max(most, m.Lag)
		}
		return float64(most), primary(x)
	})
	gauge("tenure_seconds", "For how long the primary may surely serve reads; 0: it has lost its tenure.", func(x *machine.ShardStatus) (float64, bool) {
		return float64(x.Tenure) / 1000, primary(x)
	})
}
