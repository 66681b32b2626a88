package logstore

import "sync/atomic"

// Features are flags of a file that uses something which older programs do not know. A checkpoint adds a
// feature to the file; each later superblock has it too. The log contains what the feature stands for only
// after that checkpoint.
const (
	featureRedoBefore = 1 << iota // redo may start before the base of a flush or checkpoint
	featureGrowing                // there may be growing pages
	featureEven                   // there may be even leaves, a form of tree page that package btree knows
	_                             // reserved: values in single pages of record groups, which no release has written
	featureLogged                 // values may stay in the pages of record groups
	featureBuilt                  // parts of a flush may have value runs, and tree pages that bear their own addresses as names
	featureKeyspaces              // keys are those of keyspaces, which package dbm knows
	featureRanges                 // redo may have records of ranges
	knownFeatures     = (1<<iota - 1) &^ (1 << 3)
)

// features are the incompatible flags of a store.
type features struct {
	wanted atomic.Uint64 // flags of the next superblock
	stated atomic.Uint64 // flags of a durable superblock
}

// RedoBefore reports whether redo may start before a base, because a durable superblock says so. If not, the
// next checkpoint adds the feature.
func (s *appender) RedoBefore() bool {
	s.features.wanted.Or(featureRedoBefore)
	return s.features.stated.Load()&featureRedoBefore != 0
}

// mayGrow reports whether the log may have growing pages. If not, the next checkpoint adds the feature.
func (s *appender) mayGrow() bool {
	s.features.wanted.Or(featureGrowing)
	return s.features.stated.Load()&featureGrowing != 0
}

// LogsValues reports whether values may stay in the pages of record groups. If not, the next checkpoint adds
// the feature.
func (s *appender) LogsValues() bool {
	if s.features.stated.Load()&featureLogged != 0 {
		return true
	}
	s.features.wanted.Or(featureLogged)
	return false
}

// EvenLeaves reports whether the tree may have even leaves. If not, the next checkpoint adds the feature.
func (s *appender) EvenLeaves() bool {
	if s.features.stated.Load()&featureEven != 0 {
		return true
	}
	s.features.wanted.Or(featureEven)
	return false
}

// BuiltTrees reports whether a flush may hold a tree that was built from the leaves upwards. If not, the next
// checkpoint adds the feature.
func (s *appender) BuiltTrees() bool {
	if s.features.stated.Load()&featureBuilt != 0 {
		return true
	}
	s.features.wanted.Or(featureBuilt)
	return false
}

// LogsRanges reports whether redo may have records of ranges. If not, the next checkpoint adds the feature.
func (s *appender) LogsRanges() bool {
	s.features.wanted.Or(featureRanges)
	return s.features.stated.Load()&featureRanges != 0
}

// Keyspaces reports whether the keys of the file are those of keyspaces, which package dbm defines.
func Keyspaces(s *Store) bool { return s.features.stated.Load()&featureKeyspaces != 0 }

// WantKeyspaces makes the next checkpoint add the feature that Keyspaces reports.
func WantKeyspaces(s *Store) { s.features.wanted.Or(featureKeyspaces) }
