package btree

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUpper compares the search in the heads with counting, for nodes of all sizes and for heads equal to and next
// to those in the node.
func TestUpper(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for count := range maxLeafCount + 1 {
		dir := make([]byte, BodySize)
		heads := make([]uint32, count)
		for i := range heads {
			switch r.Intn(3) {
			case 0:
				heads[i] = r.Uint32()
			case 1:
				heads[i] = uint32(r.Intn(50))
			default:
				heads[i] = ^uint32(r.Intn(50))
			}
		}
		slices.Sort(heads)
		n := Node{dir: pointerTo(dir), meta: pack(0, count, 0, 0)}
		for i, h := range heads {
			store32(n.dir, headerBytes+i*headBytes, h)
		}
		probes := []uint32{0, 1, 1 << 31, 1<<32 - 1}
		for range 20 {
			if count > 0 {
				h := heads[r.Intn(count)]
				probes = append(probes, h-1, h, h+1)
			}
		}
		for _, h := range probes {
			want := 0
			for want < count && heads[want] <= h {
				want++
			}
			if got := n.upper(h); got != want {
				require.Equal(t, want, got, "count %d, head %#x", count, h)
			}
		}
	}
}

func TestHeadOf(t *testing.T) {
	for _, c := range []struct {
		key  string
		head uint32
	}{{"", 0}, {"\x01", 0x01000000}, {"\x01\x02", 0x01020000}, {"\x01\x02\x03", 0x01020300}, {"\x01\x02\x03\x04", 0x01020304}, {"\xff\xff\xff\xff\xff", 0xFFFFFFFF}} {
		require.Equal(t, c.head, headOf([]byte(c.key)), "%q", c.key)
	}
}

// TestRoute checks which child is chosen for a key when separators share heads, padding and prefixes.
func TestRoute(t *testing.T) {
	p := newTree()
	defer p.memory.Close()
	for _, separators := range [][]string{
		{"", "b"},
		{"", "a", "a\x00", "a\x00\x00", "a\x00\x00\x00", "a\x00\x00\x00\x00", "a\x00\x00\x00\x00\x00", "aa", "aaaaaa", "aaaaab"},
		{"", "key-a", "key-a\x00", "key-aaaaaaa", "key-aaaaaab", "key-b"},
		{"", "\xff", "\xff\xff", "\xff\xff\xff\xff", "\xff\xff\xff\xff\xff"},
	} {
		n := View(innerOf(t, 1, separators...))
		probes := []string{"", "\x00", "z", "\xff\xff\xff\xff\xff\xff"}
		for _, s := range separators {
			for cut := range len(s) + 1 {
				probes = append(probes, s[:cut], s[:cut]+"\x00", s[:cut]+"\xff", s[:cut]+"aaaaaaaa")
			}
		}
		for _, key := range probes {
			want := 0
			for want+1 < len(separators) && separators[want+1] <= key {
				want++
			}
			got, err := n.route(p, []byte(key), 0)
			require.NoError(t, err)
			require.Equal(t, want, got, "%q among %q", key, separators)
			for i := 1; i < len(separators); i++ {
				reached, err := n.reachesSeparator(p, []byte(key), i)
				require.NoError(t, err)
				require.Equal(t, key >= separators[i], reached, "%q and %q", key, separators[i])
			}
		}
	}
}
