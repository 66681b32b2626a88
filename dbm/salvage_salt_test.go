package dbm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/pagefile"
	"flashdbm/internal/salvage"
	"flashdbm/logstore"
)

// A salted says, for an undamaged file, which pages have a salt in their checksums, and where that salt can be found.
type salted struct {
	heads      map[uint32][]logstore.Addr // such pages of each segment of the log
	salts      map[uint32]uint64          // as the segments' headers say
	before     map[uint64]logstore.Addr   // by salt of the previous segment: the header that names it as predecessor
	checkpoint []logstore.Addr            // pages of the newest checkpoint, and the headers of their segments
	known      map[uint32]uint64          // salts that the checkpoint has
}

const salvageSegmentPages = 256

func headerOf(n uint32) logstore.Addr {
	return logstore.Addr(n)*salvageSegmentPages + logstore.HeaderPage(n)
}

func saltedPages(t testing.TB, file []byte) salted {
	t.Helper()
	s := salted{map[uint32][]logstore.Addr{}, map[uint32]uint64{}, map[uint64]logstore.Addr{}, nil, map[uint32]uint64{}}
	mem := memoryFile(t, file)
	defer mem.Release()
	f, err := pagefile.Open(t.Context(), mem, salvagePath, 0)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, uint32(salvageSegmentPages), f.SegmentPages)
	parts, first := map[uint64][]logstore.Addr{}, map[uint64]uint64{} // of checkpoints, by group
	require.NoError(t, f.EachSegment(func(n uint32) error {
		if g := f.Segment(n); g.HasHeader {
			s.salts[n] = g.Header.Salt
			s.before[g.Header.Predecessor] = headerOf(n)
		}
		if g := f.Segment(n); g.Private() { // its runs also have checksums without the salt
			return nil
		}
		return f.EachSound(n, func(a uint64, x logstore.PageHead, _ []byte) {
			s.heads[n] = append(s.heads[n], a)
			if x.Group == logstore.CheckpointGroup {
				parts[x.No], first[x.No] = append(parts[x.No], a, headerOf(n)), x.Count
			}
		})
	}))
	r, err := salvage.Read(t.Context(), f)
	require.NoError(t, err)
	last, _, space := r.Checkpoint()
	for n, e := range space {
		s.known[uint32(n)] = e.Salt
	}
	for no := first[last]; no > 0 && no <= last; no++ {
		s.checkpoint = append(s.checkpoint, parts[no]...)
	}
	return s
}

// unknown returns the pages whose salt cannot be found any more. Each page implies a salt, whatever its bytes are: see
// logstore.ImpliedSeed. The salt is known if the header of the segment is undamaged, or the header of the segment in
// which the log continued, or a checkpoint that has the salt, or if two undamaged pages of the segment imply the same
// salt.
func (s *salted) unknown(damaged map[logstore.Addr]bool) map[logstore.Addr]bool {
	unknown := map[logstore.Addr]bool{}
	checkpoint := len(s.checkpoint) > 0
	for _, a := range s.checkpoint {
		checkpoint = checkpoint && !damaged[a]
	}
	for n, heads := range s.heads {
		salt, sound := s.salts[n], 0
		for _, a := range heads {
			if !damaged[a] {
				sound++
			}
		}
		next, ok := s.before[salt]
		if damaged[headerOf(n)] && sound < 2 && (!ok || damaged[next]) && !(checkpoint && s.known[n] == salt) {
			for _, a := range heads {
				unknown[a] = true
			}
		}
	}
	return unknown
}
