#!/bin/sh
# fetch_sources.sh DIRECTORY PACKAGE...: downloads the source packages of this Debian release, without changing the system's settings.
set -eu
cd "$1"
shift
mkdir -p apt/lists/partial apt/cache/archives/partial
. /etc/os-release
test "$ID" = debian || { echo "not Debian: sources are fetched from its archive" >&2; exit 1; }
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $VERSION_CODENAME main" >apt/sources.list
cat >apt/conf <<EOF
Dir::State "$PWD/apt";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "$PWD/apt/cache";
Dir::Etc::sourcelist "$PWD/apt/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "$(id -un)";
EOF
export APT_CONFIG="$PWD/apt/conf"
apt-get -qq update
apt-get -qq source --download-only "$@"
