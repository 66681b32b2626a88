package vfs_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"flashdbm/logstore/vfs"
)

// benchMem returns a durable file of that size with 16 unsynced pages.
func benchMem(b *testing.B, size int) *vfs.Mem {
	m, f := newMem(b)
	write(b, f, make([]byte, size-16*page), 0)
	write(b, f, make([]byte, size), 0)
	if err := f.Datasync(); err != nil {
		b.Fatal(err)
	}
	for i := range 16 {
		write(b, f, pages('a', 1), int64(i*5%16)*page)
	}
	return m
}

func BenchmarkImage(b *testing.B) {
	for _, size := range []int{128 << 10, 1 << 20, 4 << 20} {
		m := benchMem(b, size)
		b.Run(fmt.Sprintf("clone/%dKiB", size>>10), func(b *testing.B) {
			for b.Loop() {
				m.Clone().Release()
			}
		})
		for _, p := range vfs.Policies() {
			b.Run(fmt.Sprintf("%v/%dKiB", p, size>>10), func(b *testing.B) {
				for b.Loop() {
					m.Crash(p, uint64(b.N)).Release()
				}
			})
		}
	}
}

func BenchmarkWritePage(b *testing.B) {
	p := make([]byte, page)
	run := func(f vfs.File) func(b *testing.B) {
		return func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				write(b, f, p, int64(i%256)*page)
				if i%16 == 15 {
					f.Datasync()
				}
			}
		}
	}
	_, f := newMem(b)
	b.Run("mem", run(f))
	b.Run("os, datasync each 16", run(create(b, vfs.OS(), filepath.Join(b.TempDir(), "f"))))
}
