#!/bin/sh
# environment.sh ROOT: every environment variable that the sources read is in docs/environment.md or docs/launching.md, and every variable
# of tessera that a document names is read somewhere.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

# Prints the names in calls that read the environment, and in tables of variables.
read_by() { # FOLDER…
    find "$@" -name '*.[ch]' -exec grep -hoE '(getenv|setenv|tsr__env_[a-z_]+)\(("[a-z]+", )?"[A-Z_]+"' {} + |
        sed 's/"$//; s/.*"//'
    find "$@" -name '*.[ch]' -exec grep -hoE '"TESSERA_[A-Z_]+"' {} + | tr -d '"'
}

# missing FILE FROM: prints the lines of FILE that are not in FROM, and fails if there are any.
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

# Without this check, the rules would hold if no variables were found.
point "variables were found" test "$(wc -l <"$folder/read")" -ge 30
point "every variable that is read is documented" missing "$folder/read" "$folder/documented"
point "every documented variable is read" missing "$folder/named" "$folder/read_anywhere"
plan
