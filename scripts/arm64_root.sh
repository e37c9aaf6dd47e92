#!/bin/sh
# arm64_root.sh FOLDER: makes a folder with C's library and what tessera needs for arm64, from packages of this Debian or Ubuntu, which are
# extracted and not installed. So this machine's own packages stay as they are.
set -eu
[ -e "$1/root.ini" ] && exit
mkdir -p "$1"
folder=$(cd "$1" && pwd)
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/packages"
: >"$folder/apt/status"
APT_CONFIG=$folder/apt/apt.conf
export APT_CONFIG
cat >"$APT_CONFIG" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State "$folder/apt";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt/cache";
END
apt-get -qq update
cd "$folder/packages"
apt-get -qq download libc6 libc6-dev libgcc-s1 linux-libc-dev check libsubunit0 libsubunit-dev libjansson4 libjansson-dev libsodium23 libsodium-dev \
    libutf8proc2 libutf8proc-dev
for package in *.deb; do
    dpkg-deb -x "$package" "$folder"
done
rm -r "$folder/packages" "$folder/apt"
printf "[constants]\nroot = '%s'\n" "$folder" >"$folder/root.ini"
