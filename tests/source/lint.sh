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
    git grep -l '^#!/bin/sh' | while read -r file; do
        case $(head -n 1 "$file") in
        '#!/bin/sh'*) echo "$file" ;;
        esac
    done
}
formatted() {
    c_files | xargs -P "$(nproc)" -n 50 clang-format --dry-run -Werror
}

# Only what was compiled: the database has the flags. A source that several programs are made of stands there several times, and
# would be analysed as often: one entry for each set of macros and instructions is enough. Writes that database, and prints its
# sources that are ours.
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
# The largest first, so that no processor is left alone with one at the end.
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

# Another version formats differently; one that everybody can agree on is enough.
case $(clang-format --version) in
*'version 14.'*) point "clang-format" formatted ;;
*) skip "clang-format" "the format is that of version 14, here is $(clang-format --version)" ;;
esac
point "clang-tidy" tidy
point "shellcheck" shell_clean
plan
