package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"flashdbm/logstore/vfs"
)

// After a failed sync the system's cache may hold pages that the system takes for clean although the device
// does not have them. A later sync succeeds and does not write them. An open for writing writes these pages
// again (rewrite). A read-only open cannot, and must not show them, because they are gone when the cache drops
// them. So it syncs, makes the system drop the pages of all groups that are not proven durable, and scans the
// log again if the device has other pages. If the system cannot drop pages, or another process has them mapped,
// the difference stays hidden.
//
// The newest checkpoint and the log before it were synced before the checkpoint's superblock was written. So
// only the superblock itself may be missing on the device; a scan from the older superblock finds the same
// groups.

// cached reports whether the cache and the device differed in the groups that are not proven durable.
func (s *Store) cached(rec *Recovery) (bool, error) {
	var was, is []byte
	most := s.stretchPages()
	differs := false
	compare := func(a Addr, pages uint64) error {
		if was == nil { // a file in which everything is proven durable, as after a clean close, needs no buffers
			was, is = make([]byte, most*PageSize), make([]byte, most*PageSize)
		}
		for ; pages > 0 && !differs; pages -= min(pages, most) {
			n := min(pages, most) * PageSize
			if _, err := s.file.ReadAt(was[:n], int64(a)*PageSize); err != nil && err != io.EOF {
				return err
			}
			if err := vfs.Drop(s.file, int64(a)*PageSize, int64(n)); err != nil {
				return err
			}
			if _, err := s.file.ReadAt(is[:n], int64(a)*PageSize); err != nil && err != io.EOF {
				return err
			}
			differs = !bytes.Equal(was[:n], is[:n])
			a += n / PageSize
		}
		return nil
	}
	synced, header := false, -1
	for i := range rec.Groups {
		g := &rec.Groups[i]
		if g.No <= rec.proven {
			continue
		}
		if !synced {
			s.syncing.Lock()
			err := s.datasync()
			s.syncing.Unlock()
			if err != nil {
				return false, err
			}
			synced = true
		}
		for _, p := range g.Pages {
			err := error(nil)
			if n := s.segmentOf(p.Addr); header != int(n) {
				header = int(n)
				err = compare(s.firstPage(n)+headerPage(n), 1)
			}
			if err == nil {
				err = compare(p.Addr, uint64(max(p.Run, 1)))
			}
			if errors.Is(err, errors.ErrUnsupported) {
				return false, nil
			} else if err != nil {
				return false, fmt.Errorf("flashdbm: read %s: %w", s.path, err)
			}
		}
	}
	return differs, nil
}

// loadFromDevice is load for a read-only store. It repeats load until every group that is not proven durable
// was read from the device.
func (s *Store) loadFromDevice() (*Recovery, error) {
	for {
		rec, err := s.load()
		if err != nil || rec.Created {
			return rec, err
		}
		if again, err := s.cached(rec); err != nil || !again {
			return rec, err
		}
		s.supers, s.sinceBase = [2]*superblock{}, nil
		s.appended.Store(0)
	}
}
