#!/bin/sh
# lint.sh BUILD: checks the C sources with clang-format and clang-tidy (checks in .clang-tidy), and the scripts with shellcheck. BUILD
# holds compile_commands.json.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
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

# clang-tidy can check only sources that were compiled, because it needs their flags from the database. If several programs share a source,
# the database has an entry for each, and clang-tidy would analyse each. This function writes a database with one entry per source and set
# of macros and instruction sets. It prints the sources in that database that git tracks.
compiled_once() { # FOLDER
    git ls-files '*.c' >"$1/tracked"
    awk -v database="$1/compile_commands.json" '
        FILENAME == ARGV[1] { tracked[$0] = 1; next }
        /^ *"directory": / { directory = $0 }
        /^ *"command": / { command = $0 }
        /^ *"file": / {
            name = $2
            gsub(/[",]/, "", name)
            key = name
            count = split(command, words, " ")
            for (i = 1; i <= count; i++)
                if (words[i] ~ /^-[Dm]/)
                    key = key " " words[i]
            if (seen[key]++)
                next
            entries++
            line = $0
            sub(/,$/, "", line)
            printf("%s\n  {\n%s\n%s\n%s\n  }", (entries > 1 ? "," : "["), directory, command, line) >database
            while (!(name in tracked) && sub(/^[^\/]*\//, "", name))
                ;
            if (name in tracked && !printed[name]++)
                print name
        }
        END { if (entries) print "\n]" >database }
    ' "$1/tracked" "$build/compile_commands.json"
}
# Starts with the largest sources, so that all processors finish at about the same time.
tidy() {
    once=$(mktemp -d)
    compiled_once "$once" | xargs -r ls -S >"$once/sources"
    if [ $((2 * $(wc -l <"$once/sources"))) -lt "$(wc -l <"$once/tracked")" ]; then
        echo "most of the sources are not in $build/compile_commands.json"
        tidied=1
    else
        xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p "$once" <"$once/sources" 2>/dev/null
        tidied=$?
    fi
    rm -r "$once"
    return "$tidied"
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
