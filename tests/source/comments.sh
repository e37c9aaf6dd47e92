#!/bin/sh
# comments.sh ROOT: what comments of the sources name exists: files, and names with the library's prefix.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Prints the comments of C files, a line for each line, with the file's name in front.
comments() { # FILE…
    awk '
        FNR == 1 { inside = 0 }
        {
            rest = $0
            text = ""
            while (rest != "") {
                if (inside) {
                    end = index(rest, "*/")
                    text = text (end ? substr(rest, 1, end - 1) : rest) " "
                    rest = end ? substr(rest, end + 2) : ""
                    if (end)
                        inside = 0
                } else {
                    start = index(rest, "/*")
                    rest = start ? substr(rest, start + 2) : ""
                    if (start)
                        inside = 1
                }
            }
            if (text != "")
                print FILENAME ": " text
        }' "$@"
}
c_files() { # FOLDER…
    find "$@" -name '*.[ch]' | sort
}

# shellcheck disable=SC2046 # several files
comments $(c_files src include bench) >"$folder/comments"
find . -path ./build -prune -o -type f -print | sed 's|^\./||' >"$folder/files"
# shellcheck disable=SC2046 # several files
cat $(c_files src include bench tests examples) $(find shaders -type f) | grep -aoE '\<(tsr_|TSR_)[A-Za-z0-9_]+' |
    sort | uniq -c | awk '{ print $2, $1 }' >"$folder/counts"
grep -oE '\<(tsr_|TSR_)[A-Za-z0-9_]+' "$folder/comments" | sort | uniq -c | awk '{ print $2, $1 }' >"$folder/commented"

# Files of other projects and of the system that comments name.
others='llama2\.c|bcrypt\.h|windows\.h|pmix\.h|gguf\.md'
files_exist() {
    sed 's|^\([^:]*\): .*|\1|' "$folder/comments" | sort -u | wc -l | grep -q ... || return 1
    awk -v others="^($others)\$" '
        FNR == NR { path = $0; known[path] = 1; while ((at = index(path, "/")) > 0) { path = substr(path, at + 1); known[path] = 1 } next }
        {
            rest = $0
            sub(/^[^:]*: /, "", rest)
            while (match(rest, /[A-Za-z0-9_.\/-]+\.(c|h|comp|glsl|md|sh)([^A-Za-z0-9_]|$)/)) {
                name = substr(rest, RSTART, RLENGTH)
                rest = substr(rest, RSTART + RLENGTH)
                sub(/[^A-Za-z0-9_]$/, "", name)
                base = name
                sub(/.*\//, "", base)
                if (!(name in known) && base !~ others) {
                    file = $0
                    sub(/: .*/, "", file)
                    print file " names " name ", which does not exist"
                    failed = 1
                }
            }
        }
        END { exit failed }' "$folder/files" "$folder/comments"
}
# A name that occurs in comments only is a mistake; one that ends in an underscore stands for several names.
names_exist() {
    join "$folder/commented" "$folder/counts" | awk '$1 !~ /_$/ && $2 == $3 { print $1 " is in comments only"; failed = 1 } END { exit failed }'
}

point "comments name files that exist" files_exist
point "comments name functions, types and constants that exist" names_exist
plan
