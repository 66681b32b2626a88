#!/bin/sh
# rivals.sh PREFIX SDBM: the conformance programs with the libraries that ours is compared with. SDBM is the directory of its source (Perl's
# ext/SDBM_File). Prints a table of what fails; what is missing on this machine is left out and said.
set -eu
prefix=$(realpath "$1")
sdbm=$(realpath "$2" 2>/dev/null || true)
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'chmod -R u+rwX "$work"; rm -rf "$work"' EXIT
chmod 755 "$work"
cc=${CC:-gcc}
flags="-std=gnu11 -w -g"
export FLASHDBM_TEST_SECONDS=10
core=$(perl -MConfig -e 'print "$Config{archlibexp}/CORE"')

build() { # name, program, options
	name=$1 program=$2
	shift 2
	case $program in
	ndbm) sources="$here/ndbm_*.c $here/tap.c" ;;
	*) sources="$here/dbm_main.c $here/tap.c" ;;
	esac
	# shellcheck disable=SC2086
	if $cc $flags -o "$work/$program-$name" $sources "$@" -lpthread 2>"$work/log"; then
		(cd "$work" && "./$program-$name" >"$program-$name.tap" 2>/dev/null) || true
	else
		echo "# $name is missing or does not compile: $(grep -m1 error "$work/log")"
	fi
}
for program in ndbm dbm; do
	build flashdbm $program -I"$prefix/include" -L"$prefix/lib" -Wl,-rpath,"$prefix/lib" -l$program
	build gdbm_compat $program -DLIBRARY_GDBM -lgdbm_compat -lgdbm
	build berkeley $program -DLIBRARY_BERKELEY -ldb-5.3
done
test -d "$sdbm" && build sdbm ndbm -DLIBRARY_SDBM -I"$sdbm" -I"$core" "$sdbm/sdbm.c" "$sdbm/pair.c" "$sdbm/hash.c"

cd "$work"
for program in ndbm dbm; do
	echo
	printf '| %s |' $program
	for name in flashdbm gdbm_compat berkeley sdbm; do test -e $program-$name.tap && printf ' %s |' $name; done
	printf '\n|---|'
	for name in flashdbm gdbm_compat berkeley sdbm; do test -e $program-$name.tap && printf -- '---|'; done
	echo
	sed -n 's/^.*ok [0-9]* - //p' $program-flashdbm.tap | sed 's/ # SKIP//' | while read -r check; do
		row="| $check |"
		differs=
		for name in flashdbm gdbm_compat berkeley sdbm; do
			test -e $program-$name.tap || continue
			line=$(grep -F -- "- $check" $program-$name.tap | head -1)
			case $line in
			*SKIP*) row="$row – |" ;;
			ok*) row="$row |" ;;
			not*) row="$row fails |" differs=1 ;;
			*) row="$row – |" ;;
			esac
		done
		test -z "$differs" || echo "$row"
	done
	printf '| **fail, of how many** |'
	for name in flashdbm gdbm_compat berkeley sdbm; do
		test -e $program-$name.tap || continue
		printf ' %s of %s |' "$(grep -c '^not ok' $program-$name.tap || true)" "$(grep 'ok ' $program-$name.tap | grep -vc SKIP)"
	done
	echo
done
