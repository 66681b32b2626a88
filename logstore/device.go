package logstore

// NoteDevice asks the file system how much room it has left. Growing the file asks by itself; this is for what others take meanwhile.
func (s *Store) NoteDevice() {
	n, err := s.file.Free()
	if err != nil { // not known: none is to be relied on
		n = 0
	}
	s.deviceFree.Store(n)
}

// DeviceFree returns how many bytes the file system had left when it was asked last.
func (s *Store) DeviceFree() int64 { return s.deviceFree.Load() }
