#!/bin/sh
# speed.sh PREFIX [RECORDS [ROUNDS]]: stores and fetches with our library, GDBM's and Berkeley DB's, in turn. SPEED_DIR is where the databases are.
set -eu
prefix=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
dir=${SPEED_DIR:-$here/../../bin}
mkdir -p "$dir"
work=$(mktemp -d -p "$dir")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
cc="${CC:-gcc} -std=gnu11 -w -O2"
$cc -I"$prefix/include" -o "$work/flashdbm" "$here/speed.c" -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -lndbm
$cc -DLIBRARY_GDBM -o "$work/gdbm_compat" "$here/speed.c" -lgdbm_compat -lgdbm || echo "# gdbm_compat is not installed"
$cc -DLIBRARY_BERKELEY -o "$work/berkeley" "$here/speed.c" -ldb-5.3 || echo "# Berkeley DB is not installed"
cd "$work"
for round in $(seq "${3:-3}"); do
	for name in flashdbm gdbm_compat berkeley; do
		test -x ./$name || continue
		mkdir -p data
		printf '%-12s ' $name
		(cd data && ../$name "${2:-1000000}")
		rm -rf data
	done
done
