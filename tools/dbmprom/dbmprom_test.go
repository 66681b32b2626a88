package dbmprom

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"flashdbm/dbm"
)

func quiet(dbm.Event) {}

func open(t *testing.T, m *Metrics) *dbm.DB {
	db, err := dbm.OpenMemory(&dbm.Options{Events: m.Event})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	m.Watch(db)
	return db
}

// TestLint: names, types and help texts pass the registry's linter, and the collected metrics are those that were
// described.
func TestLint(t *testing.T) {
	m := New("fruit", quiet)
	open(t, m)
	problems, err := testutil.CollectAndLint(m)
	require.NoError(t, err)
	require.Empty(t, problems)
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(m))
	require.NoError(t, r.Register(New("vegetables", quiet)), "of another name")
	require.Error(t, r.Register(New("fruit", quiet)))
	_, err = r.Gather()
	require.NoError(t, err)
}

func TestHandler(t *testing.T) {
	m := New("fruit", quiet)
	db := open(t, m)
	for i := range 5 {
		require.NoError(t, db.Put(fmt.Append(nil, i), nil))
	}
	answer := httptest.NewRecorder()
	Handler(m, New("other", quiet)).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	text := string(body)
	require.Contains(t, text, "\nflashdbm_commits_total{database=\"fruit\"} 5\n")
	require.Contains(t, text, "\nflashdbm_records{database=\"fruit\"} 5\n")
	require.Contains(t, text, "\nflashdbm_failed{database=\"fruit\"} 0\n")
	require.Contains(t, text, `flashdbm_events_total{database="fruit",kind="open"} `)
	require.Contains(t, text, `flashdbm_events_total{database="other",kind="slow sync"} 0`)
	require.NotContains(t, text, `flashdbm_records{database="other"}`, "it watches no database")
}

// TestEvents: each event is counted by its kind and passed on.
func TestEvents(t *testing.T) {
	var got []dbm.EventKind
	m := New("fruit", func(e dbm.Event) { got = append(got, e.Kind) })
	m.Event(dbm.Event{Kind: dbm.EventSlowSync})
	m.Event(dbm.Event{Kind: dbm.EventSlowSync})
	m.Event(dbm.Event{Kind: dbm.EventPoisoned})
	require.Equal(t, []dbm.EventKind{dbm.EventSlowSync, dbm.EventSlowSync, dbm.EventPoisoned}, got)
	require.EqualValues(t, 2, testutil.ToFloat64(m.events.WithLabelValues("slow sync")))
	require.EqualValues(t, 1, testutil.ToFloat64(m.events.WithLabelValues("poisoned")))
	require.Zero(t, testutil.ToFloat64(m.events.WithLabelValues("open")))
	New("fruit", nil).Event(dbm.Event{Kind: dbm.EventOpen}) // the default logger prints nothing for this event
}

// TestEveryFieldHasAMetric: each number of dbm.Stats that is set appears in exactly one metric, in its unit, and
// nothing else does.
func TestEveryFieldHasAMetric(t *testing.T) {
	texts := map[string]string{"OldestSnapshot": "a stack is no number", "Locked": "a date, of one opening"}
	at := 0
	var walk func(v reflect.Value, name string, set func() *dbm.Stats)
	check := func(name string, s *dbm.Stats, want float64) {
		ch := make(chan prometheus.Metric, 100)
		New("fruit", quiet).collect(s, ch)
		close(ch)
		shown := 0
		for one := range ch {
			var d dto.Metric
			require.NoError(t, one.Write(&d))
			value := d.GetGauge().GetValue() + d.GetCounter().GetValue()
			if value != 0 {
				require.Contains(t, []float64{want, want * pageBytes}, value, name)
				shown++
			}
		}
		require.Equal(t, 1, shown, "metrics of %s", name)
	}
	walk = func(v reflect.Value, name string, whole func() *dbm.Stats) {
		for i := range v.NumField() {
			at++
			f, field := v.Field(i), v.Type().Field(i).Name
			want := float64(1000 + at)
			switch {
			case texts[field] != "":
				continue
			case f.Kind() == reflect.Struct:
				walk(f, name+field+".", whole)
				continue
			case f.Type() == reflect.TypeFor[time.Duration]():
				f.SetInt(int64(want) * int64(time.Second))
			case f.CanInt():
				f.SetInt(int64(want))
			case f.CanUint():
				f.SetUint(uint64(want))
			case f.Kind() == reflect.Bool:
				if field == "Created" { // constant for an opening, and useless in a graph
					continue
				}
				f.SetBool(true)
				want = 1
			case f.Kind() == reflect.String:
				f.SetString("why")
				want = 1
			default:
				t.Fatalf("a field of a new kind: %s", field)
			}
			check(name+field, whole(), want)
			f.SetZero()
		}
	}
	var s dbm.Stats
	walk(reflect.ValueOf(&s).Elem(), "", func() *dbm.Stats { return &s })
	require.Greater(t, at, 25)
}

// known returns the names of all metrics.
func known() map[string]bool {
	names := map[string]bool{"flashdbm_events_total": true}
	for _, d := range described {
		names["flashdbm_"+d.name] = true
	}
	return names
}

// requireKnown fails if an expression names a metric or a kind of event that does not exist.
func requireKnown(t *testing.T, expr string) {
	t.Helper()
	used := regexp.MustCompile(`flashdbm_\w+`).FindAllString(expr, -1)
	require.NotEmpty(t, used, expr)
	for _, name := range used {
		require.True(t, known()[name], "%s in %s", name, expr)
	}
	kinds := map[string]bool{}
	for k := dbm.EventKind(0); k <= dbm.EventClose; k++ {
		kinds[k.String()] = true
	}
	for _, kind := range regexp.MustCompile(`events_total\{[^}]*kind="([^"]*)"`).FindAllStringSubmatch(expr, -1) {
		require.True(t, kinds[kind[1]], "kind %q in %s", kind[1], expr)
	}
	require.Equal(t, strings.Count(expr, "("), strings.Count(expr, ")"), expr)
}

// TestAlerts: the example rules can be parsed, and name only existing metrics.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	require.Len(t, file.Groups, 1)
	require.Greater(t, len(file.Groups[0].Rules), 5)
	seen := map[string]bool{}
	for _, r := range file.Groups[0].Rules {
		require.Regexp(t, `^Flashdbm[A-Z]\w+$`, r.Alert)
		require.False(t, seen[r.Alert], r.Alert)
		seen[r.Alert] = true
		require.Contains(t, []string{"critical", "warning"}, r.Labels["severity"])
		require.Contains(t, r.Annotations["summary"], "{{ $labels.database }}")
		require.NotEmpty(t, r.Annotations["description"])
		requireKnown(t, r.Expr)
	}
}

// TestDashboard: the dashboard can be parsed, its panels do not overlap, and their metrics exist.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var board struct {
		Title  string
		UID    string
		Panels []struct {
			ID          int
			Title, Type string
			Description string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr, LegendFormat string }
			FieldConfig struct{ Defaults struct{ Unit string } }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	require.Equal(t, "flashdbm", board.Title)
	require.Greater(t, len(board.Panels), 8)
	taken := map[[2]int]int{}
	ids := map[int]bool{}
	shown := ""
	for _, p := range board.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Zero(t, taken[at], "%s lies on another panel", p.Title)
				taken[at] = p.ID
			}
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			requireKnown(t, target.Expr)
			require.Contains(t, target.Expr, `database=~"$database"`, p.Title)
			require.NotEmpty(t, target.LegendFormat, p.Title)
			shown += target.Expr
		}
	}
	for name := range known() {
		if !strings.HasPrefix(name, "flashdbm_recovery_") && name != "flashdbm_events_skipped_total" && name != "flashdbm_folds_total" {
			require.Contains(t, shown, name, "no panel shows it")
		}
	}
	names := []string{}
	for _, v := range board.Templating.List {
		names = append(names, v.Name)
	}
	require.Equal(t, []string{"datasource", "database"}, names)
}
