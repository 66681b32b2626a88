// Package dbmprom shows the statistics and the events of a flashdbm database to Prometheus. It is a module of its own, so that programs without
// Prometheus do not get its libraries.
//
//	metrics := dbmprom.New("fruit", nil)
//	db, err := dbm.Open("fruit.fdbm", &dbm.Options{Events: metrics.Event})
//	...
//	metrics.Watch(db)
//	prometheus.MustRegister(metrics)
//
// The names of all metrics begin with flashdbm_, and each has the label database. dashboard.json in this directory is a dashboard
// for Grafana over them, alerts.yml an example of rules.
package dbmprom

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"flashdbm/dbm"
)

// Metrics are those of one database. It is a prometheus.Collector: reading them is a DB.Stats, which takes microseconds and returns while a
// sync hangs. Any goroutine may use it.
type Metrics struct {
	next   func(dbm.Event)
	db     atomic.Pointer[dbm.DB] // nil until Watch
	gauges []metric
	events *prometheus.CounterVec // by kind
}

// metric is one that a Stats has the value of.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *dbm.Stats) float64
	label []string
}

// New returns the metrics of a database, whose label database is name. Event hands each event on to next; nil is dbm.LogEvents(nil), which
// writes to the default logger of package slog.
func New(name string, next func(dbm.Event)) *Metrics {
	if next == nil {
		next = dbm.LogEvents(nil)
	}
	labels := prometheus.Labels{"database": name}
	m := &Metrics{
		next: next,
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flashdbm_events_total", Help: "Events by kind, see dbm.EventKind.", ConstLabels: labels,
		}, []string{"kind"}),
	}
	for k := dbm.EventKind(0); k <= dbm.EventClose; k++ { // so that a rate begins at zero
		m.events.WithLabelValues(k.String())
	}
	for _, d := range described {
		var variable []string
		if d.label != "" {
			variable = []string{d.label}
		}
		for _, v := range d.values {
			one := metric{desc: prometheus.NewDesc("flashdbm_"+d.name, d.help, variable, labels), kind: d.kind, value: v.of}
			if d.label != "" {
				one.label = []string{v.label}
			}
			m.gauges = append(m.gauges, one)
		}
	}
	return m
}

// Watch makes db the database whose statistics are shown. Call it after Open, and again after the database was closed and opened again. A closed
// database shows zeros.
func (m *Metrics) Watch(db *dbm.DB) { m.db.Store(db) }

// Event counts an event and hands it on. It is for Options.Events.
func (m *Metrics) Event(e dbm.Event) {
	m.events.WithLabelValues(e.Kind.String()).Inc()
	m.next(e)
}

// Describe is that of prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for i := range m.gauges {
		to <- m.gauges[i].desc
	}
	m.events.Describe(to)
}

// Collect is that of prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.events.Collect(to)
	if db := m.db.Load(); db != nil {
		s := db.Stats()
		m.collect(&s, to)
	}
}

func (m *Metrics) collect(s *dbm.Stats, to chan<- prometheus.Metric) {
	for i := range m.gauges {
		g := &m.gauges[i]
		to <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(s), g.label...)
	}
}

// Handler serves the metrics of databases, and nothing else, as Prometheus reads them: for programs that have no registry of their own. It panics
// if two have the same name.
func Handler(all ...*Metrics) http.Handler {
	r := prometheus.NewRegistry()
	for _, m := range all {
		r.MustRegister(m)
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}
