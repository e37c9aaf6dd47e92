#!/bin/bash
# Removes each barrier of each GPU kernel in turn and finds out which test notices.
#
#   tests/gpu/driver/barriers.sh run PROGRAM…    runs programs of the lane `adversary`, such as softmax; without a name, all of them
#   tests/gpu/driver/barriers.sh table           writes docs/log/barriers.md from what has been run
#
# The GPU suite is built in build/barriers with line numbers in its shaders. A program runs once with all barriers, which tells the barriers
# of the kernels that it uses, and then once without each barrier that no earlier program has noticed: with the invocations in reverse, and
# if it passes, in their usual order. Results are kept in build/barriers/found, and a run goes on where the last one stopped.
set -eu
cd "$(dirname "$0")/../../.."
build=build/barriers
found=$build/found
reasons=tests/gpu/driver/barriers.txt
page=docs/log/barriers.md

set_up() {
    mkdir -p "$build.tools"
    printf '#!/bin/sh\nexec glslc -g "$@"\n' >"$build.tools/glslc"
    chmod +x "$build.tools/glslc"
    printf "[binaries]\nglslc = '%s'\n" "$PWD/$build.tools/glslc" >"$build.tools/native.ini"
    [ -e "$build/build.ninja" ] || meson setup "$build" --native-file "$build.tools/native.ini" -Ddebug=false
    mkdir -p "$found"
    meson introspect "$build" --tests >"$found/tests.json"
}

# Prints the names of the lane's programs, or the variables of one of them, each followed by a zero byte.
names() {
    python3 -c 'import json, sys
for test in json.load(open(sys.argv[1])):
    name = test["name"].removeprefix("adversary-")
    if name not in (test["name"], "planted"): print(name)' "$found/tests.json"
}
variables() { # PROGRAM
    python3 -c 'import json, sys
for test in json.load(open(sys.argv[1])):
    if test["name"] == "adversary-" + sys.argv[2]:
        for name, value in test["env"].items(): print(name + "=" + value, end="\0")' "$found/tests.json" "$1"
}

run_program() { # PROGRAM VARIABLE=VALUE…: runs it like the lane, except for these variables, and with any access
    program=$1
    shift
    mapfile -d '' environment < <(variables "$program")
    env "${environment[@]}" TEST_DRIVER_ACCESS=0 "$@" nice -n 19 timeout 600 "$build/tests/gpu/test-gpu-$program" >"$found/output" 2>&1 </dev/null
}

find_uses() { # PROGRAM: writes its barriers to $found/PROGRAM.uses
    [ ! -e "$found/$1.uses" ] || return 0
    rm -f "$found/$1.all"
    run_program "$1" TEST_DRIVER_BARRIERS="$found/$1.all" || { echo "$1 fails with all its barriers: see $found/output" >&2; exit 1; }
    touch "$found/$1.all"
    sort -u "$found/$1.all" >"$found/$1.uses"
    echo "$1: $(wc -l <"$found/$1.uses") barriers"
}

first_failure() { # the first test of the last run that failed
    failed=$(sed -n 's/^not ok [0-9]* - [^:]*:[^:]*:\([^:]*\):.*/\1/p' "$found/output" | head -1)
    echo "${failed:-the program crashes}"
}

# $found/results has lines KERNEL FILE:LINE KIND | PROGRAM | the test and the order of invocations that notice, or "nothing".
remove_each() { # PROGRAM
    touch "$found/results"
    while read -r kernel place kind; do
        ! grep "^$kernel $place $kind |" "$found/results" | grep -qv '| nothing$' || continue
        ! grep -q "^$kernel $place $kind | $1 |" "$found/results" || continue
        result=nothing
        for reversed in 1 0; do
            run_program "$1" TEST_DRIVER_REMOVE="$kernel $place" TEST_DRIVER_INVOCATIONS=$reversed && continue
            result="$(first_failure), $([ $reversed = 1 ] && echo reverse || echo usual)"
            break
        done
        echo "$kernel $place $kind | $1 | $result" | tee -a "$found/results"
    done <"$found/$1.uses"
}

# Prints "FUNCTION N" for the Nth barrier of a function, which is at this line of a shader; nothing if there is none.
place_of() { # FILE LINE
    awk -v line="$2" '/^[a-z][a-z0-9_ ]* [A-Za-z0-9_]+\(.*[^;]$/ { name = $0; sub(/\(.*/, "", name); sub(/.* /, "", name); number = 0 }
        /[bB]arrier[A-Za-z]*\(\);/ { number++; if (NR == line) print name, number }' "$1"
}

row() { # KERNEL FILE:LINE KIND: prints the barrier's row of the table, or nothing if the source has changed
    file=$(find shaders -name "${2%:*}" | head -1)
    line=${2#*:}
    place=$(place_of "${file:-/dev/null}" "$line")
    [ -n "$place" ] || return 0
    after=$(tail -n +"$((line + 1))" "$file" | grep -v '^ *//\|^ *$\|^ *}$\|^ *{$' | head -1 | sed 's/^ *//; s/|/\\|/g; s/ *\\$//')
    seen=$(sed -n "/| nothing\$/d; s/^$1 $2 $3 | //p" "$found/results" | head -1)
    if [ -z "$seen" ]; then
        reason=$(sed -n "s/^${2%:*} $place: //p" "$reasons")
        seen="nothing in $(sed -n "s/^$1 $2 $3 | \(.*\) | nothing/\1/p" "$found/results" | sort -u | paste -sd, | sed 's/,/, /g') | ${reason:-**no reason yet**}"
    fi
    echo "| ${1%.comp} | ${file#shaders/}:$line, ${place% *}() | \`$after\` | $seen |"
}

# Prints the kernels for GPUs that are in no row of the page so far, and of which a source has a barrier.
missing() {
    for file in shaders/gpu/*.comp; do
        name=$(basename "$file" .comp)
        ! grep -q "^| $name |" "$page.new" || continue
        sources=$(sed -n 's/^#include "\(.*\.glsl\)"/\1/p' "$file" | while read -r included; do
            find shaders -path "*/$included"
        done)
        # shellcheck disable=SC2086 # several files
        ! grep -q 'barrier();' "$file" $sources || echo "$name"
    done
}

table() {
    {
        echo "# Barriers of the GPU kernels, and what notices their absence"
        echo
        echo "Written by \`tests/gpu/driver/barriers.sh table\` on $(date +%Y-%m-%d), on lavapipe behind the test driver. Each barrier was removed alone, from one"
        echo "kernel, and programs of the lane \`adversary\` ran without it: with the invocations of each workgroup, and the workgroups, in reverse, and then in their"
        echo "usual order. The third column is the next line of code after the barrier. Lines are those of the date above."
        echo
        echo "| kernel | barrier | before | program | the test that fails first, and the order |"
        echo "| --- | --- | --- | --- | --- |"
        cut -d'|' -f1 "$found/results" | sort -u | while read -r kernel place kind; do row "$kernel" "$place" "$kind"; done
    } >"$page.new"
    {
        echo
        echo "Kernels that include a barrier or a file with one, and that were not run, or whose source has changed since: $(missing | paste -sd, | sed 's/,/, /g')."
    } >>"$page.new"
    mv "$page.new" "$page"
    grep -c '^| [a-z]' "$page"
}

case ${1-} in
run)
    shift
    set_up
    programs=("$@")
    [ $# -gt 0 ] || mapfile -t programs < <(names)
    ninja -C "$build" "${programs[@]/#/tests/gpu/test-gpu-}" tests/gpu/tessera-test-driver.so
    for program in "${programs[@]}"; do
        find_uses "$program"
        remove_each "$program"
    done
    ;;
table) table ;;
*)
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
