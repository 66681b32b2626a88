#!/bin/sh
# The conformance programs, compiled with the public headers and nothing else, against what is installed under PREFIX:
# conformance.sh PREFIX. With FLASHDBM_TEST_LONG set, in full length. Fails if any check does.
set -eu
prefix=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'chmod -R u+rwX "$work"; rm -rf "$work"' EXIT
chmod 755 "$work"
cc=${CC:-gcc}
flags="-std=gnu11 -Wall -Wextra -Wno-unused-parameter -g -I$prefix/include"
libs="-L$prefix/lib -Wl,-rpath,$prefix/lib -lpthread"

$cc $flags -o "$work/ndbm" "$here"/ndbm_*.c "$here/tap.c" $libs -lndbm
$cc $flags -o "$work/dbm" "$here/dbm_main.c" "$here/tap.c" $libs -ldbm
if nm -D --defined-only "$prefix/lib/libndbm.so" | grep -qwE 'store|fetch|delete|firstkey|nextkey|dbminit|dbmclose'; then
	echo "not ok - libndbm has none of the old names" >&2
	exit 1
fi
# Programs written for one interface that link the other's library.
$cc $flags -o "$work/ndbm-by-dbm" "$here"/ndbm_*.c "$here/tap.c" $libs -ldbm
if command -v g++ >/dev/null; then
	g++ -Wall -Wextra -I"$prefix/include" -o "$work/cxx" "$here/headers.cc" $libs -ldbm
	(cd "$work" && ./cxx) && echo "ok - C++"
else
	echo "# no g++: the headers were not tried with C++"
fi
# Beside another header that defines datum: what cannot be right must not compile.
foreign() { # yes or no, compiler, -x language, options
	expected=$1 compiler=$2 language=$3
	shift 3
	result=no
	# shellcheck disable=SC2086
	$compiler -x "$language" -Wall -Wextra -I"$prefix/include" "$@" -o "$work/foreign" "$here/foreign_datum.c" -x none $libs -ldbm 2>"$work/foreign.log" &&
		(cd "$work" && ./foreign) && result=yes
	test $result = "$expected" || { cat "$work/foreign.log"; echo "not ok - datum of another header: $language $*"; failed=1; }
}
failed=0
for language in c c++; do
	compiler=$cc
	test $language = c || compiler=g++
	command -v $compiler >/dev/null || continue
	foreign yes $compiler $language
	foreign yes $compiler $language -DBEFORE=size_t
	foreign yes $compiler $language -DBEHIND=size_t
	foreign yes $compiler $language -DBEHIND=int
	foreign no $compiler $language -DBEFORE=int
	test ! -e /usr/include/gdbm.h || foreign no $compiler $language -include gdbm.h # does not look at DATUM
done
test $failed = 1 || echo "ok - beside other headers' datum"
# One for another library's header, whose library is preloaded; it is linked with ours so that its calls are known.
$cc $flags -o "$work/int_dsize" "$here/int_dsize.c" "$prefix/lib/libflashdbm-preload.so" -Wl,-rpath,"$prefix/lib"
cd "$work"
./int_dsize || failed=1
if command -v pkg-config >/dev/null; then
	options=$(PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --cflags --libs flashdbm-ndbm)
	# shellcheck disable=SC2086
	$cc -o packaged "$here/int_dsize.c" $options -Wl,-rpath,"$prefix/lib" && echo "ok - pkg-config" || failed=1
else
	echo "# no pkg-config: its file was not tried"
fi
for page in ndbm dbm dbm_open dbm_fetch dbm_store; do
	test -s "$prefix/share/man/man3/$page.3" || { echo "not ok - no manual page $page(3)"; failed=1; }
done
for program in ndbm dbm; do
	echo "# $program"
	./$program || failed=1
done
./ndbm-by-dbm "store: insert and replace" "fork: the child writes" || failed=1
exit $failed
