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
cd "$work"
failed=0
for program in ndbm dbm; do
	echo "# $program"
	./$program || failed=1
done
./ndbm-by-dbm "store: insert and replace" "fork: the child writes" || failed=1
exit $failed
