#!/bin/sh
# environment.sh ROOT: every environment variable that is read is in docs/environment.md or docs/launching.md, and those of tessera's own
# that any document names are read somewhere.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

# The names in calls that read the environment, and in tables of them.
read_by() { # FOLDER…
    find "$@" -name '*.[ch]' -exec grep -hoE '(getenv|setenv|tsr__env_[a-z_]+)\(("[a-z]+", )?"[A-Z_]+"' {} + |
        sed 's/"$//; s/.*"//'
    find "$@" -name '*.[ch]' -exec grep -hoE '"TESSERA_[A-Z_]+"' {} + | tr -d '"'
}

# missing FILE FROM: the lines of FILE that are not in FROM; fails when there are some.
missing() {
    ! grep -vxF -f "$2" "$1"
}

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
grep -ohE '[A-Z][A-Z_]+' docs/environment.md docs/launching.md | sort -u >"$folder/documented"
read_by src bench examples | sort -u >"$folder/read"
read_by src bench examples tests | sort -u >"$folder/read_anywhere"
{ cat docs/*.md docs/tessera.1 README.md CONTRIBUTING.md examples/README.md | tr -d '\134' |
    grep -ohE 'TESSERA_[A-Z_]+|HELLO_LOG'; } | sort -u >"$folder/named"

# No rule without something to hold for.
point "some are read" test "$(wc -l <"$folder/read")" -ge 30
point "what is read is documented" missing "$folder/read" "$folder/documented"
point "what is documented is read" missing "$folder/named" "$folder/read_anywhere"
plan
