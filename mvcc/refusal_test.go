package mvcc

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestFullBesideAnIdleTransaction: on a full file, an idle transaction keeps the space of deleted records. Puts wait
// for it once, not each time. As soon as it has ended, deletes find room, and puts try to make room again.
func TestFullBesideAnIdleTransaction(t *testing.T) {
	opts := Options{Durability: WriteThrough}
	opts.Store.MaxFileSize = 4 << 20
	e := newEngine(t, opts)
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%05d", i) }
	put := func(key []byte) error {
		return update(e, TxOptions{}, func(tx *Tx) error { return tx.Put(key, make([]byte, 200)) })
	}
	n, err := 0, error(nil)
	for ; err == nil; n++ {
		err = put(key(n))
	}
	require.ErrorIs(t, err, logstore.ErrFull)
	for i := 0; i < n; i += 40 {
		require.NoError(t, update(e, TxOptions{}, func(tx *Tx) error { return tx.Delete(key(i)) }))
	}
	idle := begin(t, e, TxOptions{})
	began := time.Now()
	for i := range 30 {
		require.ErrorIs(t, put(fmt.Appendf(nil, "new-%05d", i)), logstore.ErrFull)
		require.ErrorIs(t, put(key(i*7+1)), logstore.ErrFull, "a value that takes the place of another one")
	}
	require.Less(t, time.Since(began), 10*lastWait, "each of the 60 puts waited")

	a := &e.admission
	require.True(t, a.waitsInVain(idle.snap.Seq()+1))
	other := begin(t, e, TxOptions{ReadOnly: true})
	require.True(t, a.waitsInVain(other.snap.Seq()))
	require.False(t, a.waitsInVain(other.snap.Seq()+1), "this one was not asked yet")
	other.Rollback()
	idle.Rollback()
	require.False(t, a.stillFull(&roomWanted{pages: 1 << 30}), "the next put makes an attempt")
	for i := n / 2; i < n/2+400; i++ { // whole leaves, so that a put certainly finds room
		require.NoError(t, update(e, TxOptions{}, func(tx *Tx) error { return tx.Delete(key(i)) }))
	}
	require.NoError(t, put([]byte("new")))
	require.False(t, a.waitsInVain(0))
}
