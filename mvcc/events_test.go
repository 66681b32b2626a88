package mvcc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/event"
)

// events returns a hub, and a function that returns what the hub has delivered so far.
func events(t *testing.T) (*event.Hub, func() []event.Event) {
	var got []event.Event
	hub := event.NewHub(func(e event.Event) { got = append(got, e) })
	return hub, func() []event.Event {
		require.True(t, hub.Wait(patience))
		return got
	}
}

// TestConflictStorm: an event is sent if at least as many commits lose as win, and at least a hundred per second lose.
func TestConflictStorm(t *testing.T) {
	for _, c := range []struct {
		name       string
		lost, done uint64
		took       time.Duration
		storm      bool
	}{
		{"many", 100, 100, time.Second, true},
		{"more win", 100, 101, time.Second, false},
		{"few", 99, 0, time.Second, false},
		{"few a second", 199, 0, 2 * time.Second, false},
		{"many for long", 200, 10, 2 * time.Second, true},
		{"too early to tell", 1000, 0, time.Second - 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			hub, got := events(t)
			e := newEngine(t, Options{Manual: true, Events: hub})
			e.readers.conflicts.Add(1000) // before the interval
			s := e.maintenance.newStorm()
			e.readers.conflicts.Add(c.lost)
			e.known.commits.Add(c.done)
			e.maintenance.warnOfStorm(s.at.Add(c.took), &s)
			var storms []event.Event
			for _, ev := range got() {
				if ev.Kind == event.ConflictStorm {
					storms = append(storms, ev)
				}
			}
			if !c.storm {
				require.Empty(t, storms)
				return
			}
			require.Len(t, storms, 1)
			require.EqualValues(t, c.lost, storms[0].Count)
			require.Equal(t, c.took, storms[0].Took)
		})
	}
}

// TestOldSnapshotIsTold: a transaction that is a minute old and keeps dead space from reuse is reported by an event,
// once a minute.
func TestOldSnapshotIsTold(t *testing.T) {
	hub, got := events(t)
	e := newEngine(t, Options{Durability: WriteThrough, RedoLimit: 1 << 20, Manual: true, Events: hub, Leases: LeaseOptions{Trace: true}})
	put(t, e, "k", "v")
	require.NoError(t, e.Checkpoint())
	tx := begin(t, e, TxOptions{ReadOnly: true})
	require.Equal(t, "v", get(t, tx, "k"))
	now := time.Now().Add(warnAge)
	require.Zero(t, e.maintenance.warnOfOldSnapshot(now, time.Time{}), "it holds nothing")
	for i := 0; e.store.HeldBytes() == 0; i++ {
		for range 300 {
			require.NoError(t, update(e, TxOptions{}, func(tx *Tx) error { return tx.Put([]byte{byte(i)}, make([]byte, 3000)) }))
		}
		require.NoError(t, e.Checkpoint())
		require.Less(t, i, 100)
	}
	require.Equal(t, now, e.maintenance.warnOfOldSnapshot(now, time.Time{}))
	require.Equal(t, now, e.maintenance.warnOfOldSnapshot(now.Add(warnAge-1), now))
	require.NoError(t, tx.Rollback())
	require.Equal(t, now, e.maintenance.warnOfOldSnapshot(now.Add(warnAge), now), "it has ended")
	var old []event.Event
	for _, ev := range got() {
		if ev.Kind == event.OldSnapshot {
			old = append(old, ev)
		}
	}
	require.Len(t, old, 1)
	require.Positive(t, old[0].Bytes)
	require.Contains(t, old[0].Began, "TestOldSnapshotIsTold")
}

// TestRecoveryIsAnEvent: the event of a recovery says how many records were redone.
func TestRecoveryIsAnEvent(t *testing.T) {
	image, want := killedWithRedo(t)
	hub, got := events(t)
	e := openOn(t, image, Options{Manual: true, Events: hub})
	require.Equal(t, event.Recovery, got()[0].Kind)
	require.Positive(t, got()[0].Count)
	require.LessOrEqual(t, got()[0].Count, int64(2*len(want)))
	require.False(t, got()[0].Dropped)
	require.NoError(t, e.Close())
}
