#!/bin/sh
# programs.sh PREFIX: real programs with the libraries installed under PREFIX: stock Perl's NDBM_File and ODBM_File with the preload library,
# Python's _dbm and shelve, and man-db, each with its own tests, from Debian's source packages; then the conformance programs in full
# length, with the address sanitizer and under valgrind, and beside the other libraries. Nothing is installed. Says at the end what passed, what
# failed, and what could not be had on this machine.
set -u
prefix=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
work=${FLASHDBM_TEST_DIR:-$(mktemp -d)}
mkdir -p "$work"
test -n "${FLASHDBM_TEST_DIR:-}" || trap 'chmod -R u+rwX "$work"; rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work" || exit 1
cc=${CC:-gcc}
lib=$prefix/lib
summary=
failed=0

passed() { summary="$summary
passed   $*"; }
failed() { failed=1; summary="$summary
FAILED   $*"; }
missing() { summary="$summary
missing  $*"; }

sources() { # package: fetches it into $work/source
	mkdir -p source
	"$here/fetch_sources.sh" source "$1" >"source-$1.log" 2>&1
}

# ---- Perl ----
sdbm=
if sources perl; then
	tar xJf source/perl_*.orig.tar.xz --wildcards '*/ext/NDBM_File' '*/ext/ODBM_File' '*/ext/SDBM_File' '*/t/lib/*' '*/t/*.pl' '*/lib/dbm_filter_util.pl'
	for module in NDBM ODBM; do
		cd perl-*/ext/${module}_File || exit 1
		if ! perl -e "require ${module}_File" 2>/dev/null; then
			missing "Perl's ${module}_File: not installed"
		elif LD_PRELOAD=$lib/libflashdbm-preload.so prove t/*.t &&
			LD_PRELOAD=$lib/libflashdbm-preload.so perl -MFcntl -e "require ${module}_File; open F, '>', \"\$_\" for 'mark.pag', 'mark.dir';
				tie %h, '${module}_File', 'mark', O_RDWR, 0644 or die; \$h{a} = 1" && grep -q flashdbm mark.dir; then
			passed "Perl ${module}_File: its test files"
		else
			failed "Perl ${module}_File"
		fi
		cd "$work" || exit 1
	done
	sdbm=$(ls -d "$work"/perl-*/ext/SDBM_File)
else
	missing "Perl: its source package could not be fetched"
fi

# ---- Python ----
python=/usr/bin/python3
version=$($python -c 'import sysconfig; print(sysconfig.get_python_version())' 2>/dev/null)
if [ -z "$version" ] || [ ! -e "/usr/include/python$version/Python.h" ]; then
	missing "Python: no $python with its headers (package libpython3-dev)"
elif ! sources "python$version"; then
	missing "Python: its source package could not be fetched"
else
	tar xzf source/python3*.orig.tar.gz --wildcards '*/Modules/_dbmmodule.c' '*/Modules/clinic/_dbmmodule.c.h' '*/Lib/test/__init__.py' \
		'*/Lib/test/support' '*/Lib/test/test_dbm_ndbm.py' '*/Lib/test/test_dbm.py' '*/Lib/test/test_shelve.py' '*/Lib/test/mapping_tests.py'
	mkdir -p python/test
	cp -r Python-*/Lib/test/. python/test
	if $cc -shared -fPIC -O1 -DUSE_NDBM -DHAVE_NDBM_H -I"$prefix/include" -I"/usr/include/python$version" Python-*/Modules/_dbmmodule.c \
		-o "python/_dbm$($python -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')" -L"$lib" -lndbm -Wl,-rpath,"$lib" &&
		(cd python && for t in test_dbm_ndbm test_dbm test_shelve; do PYTHONPATH=$work/python $python -m unittest test.$t || exit 1; done) &&
		(cd python && PYTHONPATH=$work/python $python -c 'import dbm.ndbm as d; d.open("mark", "c")["a"] = "1"' && grep -q flashdbm mark.dir); then
		passed "Python's _dbm: test_dbm_ndbm, test_dbm, test_shelve"
	else
		failed "Python's _dbm"
	fi
fi

# ---- man-db ----
if ! pkg-config --exists libpipeline 2>/dev/null || ! command -v flex >/dev/null || ! command -v groff >/dev/null; then
	missing "man-db: needs libpipeline-dev, zlib1g-dev, flex, groff, pkg-config"
elif ! sources man-db; then
	missing "man-db: its source package could not be fetched"
else
	rm -rf man-db-*/
	tar xJf source/man-db_*.orig.tar.xz
	cd man-db-* || exit 1
	# Its manual needs all of groff; the programs and their tests do not.
	if ./configure -q --with-db=ndbm --disable-setuid --disable-cache-owner --without-libseccomp --disable-nls --with-systemdtmpfilesdir=no \
		--with-systemdsystemunitdir=no CPPFLAGS="-I$prefix/include" LDFLAGS="-L$lib -Wl,-rpath,$lib" >"$work/man-db.log" 2>&1 &&
		{ make -k -j2 >>"$work/man-db.log" 2>&1; make -C src check >>"$work/man-db.log" 2>&1; } &&
		ldd src/.libs/mandb | grep -q "$lib/libndbm"; then
		passed "man-db --with-db=ndbm: $(sed -n 's/^# PASS: *//p' "$work/man-db.log") tests"
	else
		tail -20 "$work/man-db.log"
		failed "man-db"
	fi
	cd "$work" || exit 1
fi

# ---- the conformance programs ----
if FLASHDBM_TEST_LONG=1 "$here/conformance.sh" "$prefix"; then
	passed "conformance, in full length"
else
	failed "conformance, in full length"
fi

# ---- syncs ----
# 100 stores are synced once, when the database is closed, or each.
syncs() { # name: stores with it set to durable
	mkdir -p syncs
	(cd syncs && env "$1=durable" strace -f -qq -e trace=fdatasync,fsync -o ../syncs.log ../stores 100 >/dev/null) && grep -c 'sync(' syncs.log
}
if command -v strace >/dev/null; then
	$cc -std=gnu11 -w -O1 -I"$prefix/include" -o stores "$here/speed.c" -L"$lib" -Wl,-rpath,"$lib" -lndbm
	once=$(syncs NOTHING) each=$(syncs FLASHDBM_DURABILITY)
	if [ "${once:-0}" -ge 1 ] && [ "$once" -lt 50 ] && [ "${each:-0}" -ge 100 ]; then
		passed "syncs: $once for 100 stores and dbm_close, $each with FLASHDBM_DURABILITY=durable"
	else
		failed "syncs: ${once:-none} for 100 stores and dbm_close, ${each:-none} with FLASHDBM_DURABILITY=durable"
	fi
else
	missing "strace, to see syncs"
fi

front="$here/../front/ndbm.c $here/../front/files.c $here/../front/turn.c $here/../front/engine.c $here/../front/still.c"
# shellcheck disable=SC2086
if $cc -std=gnu11 -w -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -I"$prefix/include" -o sanitized "$here"/ndbm_*.c "$here/tap.c" $front -ldl -lpthread; then
	# The sanitizer has no room in a small address space, and does not find its way from a jump out of a stack of Go's. Some need it to keep to itself: they let the program end without closing what it
	# has opened, or look at what signals do that it would handle.
	never='little address space|jumps out of a fetch|a fetch, by a timer|a faulty call|engine in another thread'
	some='exit without close|eight children|default actions|before the first open|own faults'
	./sanitized --list | grep -vE "$never|$some" >checks
	./sanitized --list | grep -E "$some" >unclosed
	export FLASHDBM_ENGINE="$lib/flashdbm/libflashdbm-engine.so"
	if xargs -d '\n' ./sanitized <checks >sanitized.tap 2>sanitized.log &&
		ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0 \
			xargs -d '\n' ./sanitized <unclosed >>sanitized.tap 2>>sanitized.log; then
		passed "conformance with the address and undefined behaviour sanitizers: $(grep -c '^ok' sanitized.tap) checks"
	else
		grep '^not' sanitized.tap
		head -40 sanitized.log
		failed "conformance with the sanitizers"
	fi
else
	missing "the address sanitizer"
fi
unset FLASHDBM_ENGINE

for san in thread address; do
	if ! $cc -std=gnu11 -w -g -O1 -fsanitize=$san -o still_gate "$here/still_gate.c" "$here/../front/still.c" -lpthread; then
		missing "the $san sanitizer"
	elif ./still_gate 10; then
		passed "fetches beside an engine that shows and hides the tree, with the $san sanitizer"
	else
		failed "fetches beside an engine that shows and hides the tree, with the $san sanitizer"
	fi
done

if command -v valgrind >/dev/null; then
	$cc -std=gnu11 -w -g -I"$prefix/include" -o plain "$here"/ndbm_*.c "$here/tap.c" -L"$lib" -lndbm -Wl,-rpath,"$lib" -lpthread
	# Without what depends on time, the handlers that valgrind keeps for itself, and what it has to complain of.
	./plain --list | grep -E '^(open|descriptors|locks|store|delete|fetch|size|memory|iteration|handles|arguments)|fork: the child (reads|writes)' |
		grep -vE 'forty times|chroot|cannot be read' >checks
	if FLASHDBM_TEST_SECONDS=300 xargs -d '\n' valgrind -q --suppressions="$here/valgrind.supp" --trace-children=no --error-exitcode=99 --leak-check=full \
		--show-leak-kinds=definite --errors-for-leak-kinds=definite ./plain <checks >valgrind.tap 2>valgrind.log; then
		passed "conformance under valgrind: $(grep -c '^ok' valgrind.tap) checks"
	else
		grep '^not' valgrind.tap
		grep -v 'large range' valgrind.log | head -60
		failed "conformance under valgrind"
	fi
else
	missing "valgrind"
fi

"$here/rivals.sh" "$prefix" "$sdbm"

echo "$summary"
exit $failed
