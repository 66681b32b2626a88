package streams

import (
	"bytes"
	"fmt"
	"iter"
)

// Verify compares the records of a database, each once, with what they must be: for every stream the result of the
// transactions from 1 to some number, not less than in least and not more than in most, and nothing else. It
// returns these numbers. large is as in [Load].
func Verify(records iter.Seq2[[]byte, []byte], least, most Numbers, large bool) (found Numbers, err error) {
	have := map[string][]byte{}
	for k, v := range records {
		have[string(k)] = bytes.Clone(v)
	}
	var chained uint64
	for s := range Count {
		key := string(numberKey(s))
		if v, ok := have[key]; ok {
			if found[s], err = decodeNumber(v); err != nil {
				return found, fmt.Errorf("key %q: %w", key, err)
			}
			delete(have, key)
		}
		if found[s] < least[s] {
			return found, fmt.Errorf("stream %d: transaction %d was promised, the last one there is %d", s, least[s], found[s])
		}
		if found[s] > most[s] {
			return found, fmt.Errorf("stream %d: transaction %d is there, the last one begun is %d", s, found[s], most[s])
		}
		if s < Chained {
			chained += found[s]
		}
	}
	if err := verifyOrder(have, chained); err != nil {
		return found, err
	}
	for s := range Count {
		if err := verifyStream(have, s, found[s], large); err != nil {
			return found, fmt.Errorf("stream %d at transaction %d: %w", s, found[s], err)
		}
	}
	for k := range have {
		return found, fmt.Errorf("key %.60q was never written, and %d more", k, len(have)-1)
	}
	return found, nil
}

func verifyOrder(have map[string][]byte, want uint64) error {
	v, ok := have[string(orderKey)]
	delete(have, string(orderKey))
	var count uint64
	if ok {
		var err error
		if count, err = decodeNumber(v); err != nil {
			return err
		}
	}
	if count != want {
		return fmt.Errorf("%d transactions of the chained streams counted themselves, their numbers say %d", count, want)
	}
	return nil
}

func verifyStream(have map[string][]byte, stream int, number uint64, large bool) error {
	for slot, w := range state(stream, number, large) {
		key := string(slotKey(stream, slot))
		v, ok := have[key]
		delete(have, key)
		switch {
		case w == nil && ok:
			return fmt.Errorf("key %q has %d bytes and was deleted or never written", key, len(v))
		case w != nil && !ok:
			return fmt.Errorf("key %q is not there, %d bytes belong", key, w.size)
		case w != nil && !bytes.Equal(v, w.value()):
			return fmt.Errorf("key %q has other bytes, %d, than were written, %d", key, len(v), w.size)
		}
	}
	return nil
}
