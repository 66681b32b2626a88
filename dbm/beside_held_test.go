package dbm

import "github.com/stretchr/testify/require"

// besideHeld is a long transaction in the writer's process, with the commit that it sees.
type besideHeld struct {
	tx *Tx
	at int
}

// hold begins such a transaction, or ends the oldest one if there are four.
func (r *besideRun) hold() {
	if len(r.held) == 4 {
		r.held[0].tx.Rollback()
		r.held = r.held[1:]
		return
	}
	tx, err := r.writer.Begin(TxOptions{ReadOnly: true})
	require.NoError(r.t, err)
	r.held = append(r.held, besideHeld{tx, r.acked})
}

// readHeld reads in one of them.
func (r *besideRun) readHeld() {
	if len(r.held) > 0 {
		h := r.held[r.rng.IntN(len(r.held))]
		for range 3 {
			require.NoError(r.t, r.compare(h.tx, h.at))
		}
	}
}

func (r *besideRun) endHeld() {
	for _, h := range r.held {
		h.tx.Rollback()
	}
	r.held = nil
}
