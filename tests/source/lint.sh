#!/bin/sh
# lint.sh BUILD [CACHE]: checks the C sources with clang-format and clang-tidy (checks in .clang-tidy), and the scripts with shellcheck.
# BUILD holds compile_commands.json. CACHE is a folder that records which sources have passed clang-tidy.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
cache=${2-}
. tests/source/tap.sh

c_files() {
    git ls-files '*.c' '*.h' | grep -v '^tests/data/'
}
scripts() {
    git grep -l '^#!/bin/sh' | while read -r file; do
        case $(head -n 1 "$file") in
        '#!/bin/sh'*) echo "$file" ;;
        esac
    done
}
formatted() {
    c_files | xargs -P "$(nproc)" -n 50 clang-format --dry-run -Werror
}

tidy() {
    python3 tests/source/tidy.py "$build" ${cache:+"$cache"}
}
shell_clean() {
    scripts | xargs shellcheck -x
}

# Other versions of clang-format give other results, so only one version is used.
case $(clang-format --version) in
*'version 14.'*) point "clang-format" formatted ;;
*) skip "clang-format" "needs version 14, found $(clang-format --version)" ;;
esac
point "clang-tidy" tidy
point "shellcheck" shell_clean
plan
