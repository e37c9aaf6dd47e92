#!/bin/sh
# scripts/windows/wine.sh PROGRAM.exe [ARGUMENT…]: runs a program of Windows under Wine, without the window manager's menus and without
# Wine's messages. The prefix is $WINEPREFIX, or build/wine in the repository.
root=$(cd "$(dirname "$0")/../.." && pwd)
export WINEPREFIX="${WINEPREFIX:-$root/build/wine}" WINEDEBUG="${WINEDEBUG:--all}"
# The programs need neither .NET nor HTML nor a desktop's menus.
export WINEDLLOVERRIDES="mscoree,mshtml,winemenubuilder.exe="
for wine in wine64 /usr/lib/wine/wine64 wine; do
    command -v "$wine" >/dev/null && exec "$wine" "$@"
done
echo "scripts/windows/wine.sh: there is no wine" >&2
exit 1
