#!/bin/sh
# lint.sh BUILD: format of the C sources, clang-tidy (checks in .clang-tidy), shellcheck. BUILD holds compile_commands.json.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
. tests/source/tap.sh

c_files() {
    git ls-files '*.c' '*.h' | grep -v '^tests/data/'
}
scripts() {
    git ls-files | while read -r file; do
        case $(head -c 9 "$file" 2>/dev/null | tr -d '\0') in
        '#!/bin/sh'*) echo "$file" ;;
        esac
    done
}
formatted() {
    c_files | xargs clang-format --dry-run -Werror
}
tidy() {
    # Only what was compiled: the database has the flags.
    c_files | grep '\.c$' | while read -r file; do
        grep -q "\"file\": \".*$file\"" "$build/compile_commands.json" && echo "$file"
    done | xargs -P "$(nproc)" -n 8 clang-tidy --quiet -p "$build" 2>/dev/null
}
shell_clean() {
    scripts | xargs shellcheck -x
}

# Another version formats differently; one that everybody can agree on is enough.
case $(clang-format --version) in
*'version 14.'*) point "clang-format" formatted ;;
*) skip "clang-format" "the format is that of version 14, here is $(clang-format --version)" ;;
esac
point "clang-tidy" tidy
point "shellcheck" shell_clean
plan
