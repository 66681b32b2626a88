#!/bin/sh
# Installs the stores in C and the tools of the benchmark where they are missing (Debian and its like).
set -eu
packages="gcc liblmdb-dev libleveldb-dev librocksdb-dev libdb5.3-dev libkyotocabinet-dev strace blktrace e2fsprogs"
missing=""
for package in $packages; do
	dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
[ "$(id -u)" = 0 ] || { echo "to be installed by root: apt-get install$missing" >&2; exit 1; }
apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
