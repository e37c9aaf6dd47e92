#!/bin/bash
# gpu_check.sh BUILD ICD: scripts/gpu-check: the page of two recorded results, mistakes, and its cheapest piece on this driver.
build=$1
icd=$2
cd "$(dirname "$0")/../.." || exit 1
. tests/source/tap.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

record() { # FOLDER, then lines NAME|VALUE|UNIT|BETTER of figures and NAME|RESULT of tests
    mkdir -p "$scratch/$1"
    echo "A device (gpu)" >"$scratch/$1/device.txt"
    while IFS='|' read -r name value unit better; do
        if [ -n "$better" ]; then
            printf '%s\t%s\t%s\t%s\n' "$name" "$value" "$unit" "$better" >>"$scratch/$1/model-f16.figures"
        else
            printf '%s\t%s\n' "$name" "$value" >>"$scratch/$1/families.tests"
        fi
    done
}
record old <<'LINES'
f16 pp512|1000|tokens/s|higher
f16 tg128|100|tokens/s|higher
f16 token, commands|182|commands|lower
f16 token, barriers|180|barriers|lower
gpu-matmul|OK
gpu-norm|FAIL
gpu-copy|OK
LINES
record new <<'LINES'
f16 pp512|1500|tokens/s|higher
f16 tg128|104|tokens/s|higher
f16 token, commands|116|commands|lower
f16 token, barriers|200|barriers|lower
gpu-matmul|FAIL
gpu-norm|OK
gpu-copy|OK
gpu-rope|FAIL
LINES
echo "llama-bench is not installed" >"$scratch/new/generation.skipped"
touch "$scratch/new/families.done" "$scratch/new/model-f16.done"

says() { # LINE: the page has this line
    cat "$scratch/new/page.md"
    grep -qxF "$1" "$scratch/new/page.md"
}
says_once() { # WORDS LINES: the page has this many lines with these words
    [ "$(grep -cF "$1" "$scratch/new/page.md")" = "$2" ]
}
refuses() { # MESSAGE ARGUMENT…
    message=$1
    shift
    output=$(scripts/gpu-check "$@" 2>&1)
    status=$?
    echo "status $status: $output"
    [ $status = 2 ] && [ "$output" = "gpu-check: $message" ]
}

point "a page is written" scripts/gpu-check --page "$scratch/new" "$scratch/old"
point "it names what is compared" says "Compared with A device (gpu), old."
point "it counts tests" says "Tests: 4, of which 2 failed."
point "a test that fails now" says "| gpu-matmul | OK | FAIL |"
point "a test that passes now" says "| gpu-norm | FAIL | OK |"
point "a new test that fails" says "| gpu-rope | not run | FAIL |"
point "a test that did not change is not named" says_once gpu-copy 0
point "a figure that became better" says "| f16 pp512 | 1000 | 1500 tokens/s | 1.50, better |"
point "a count that became better" says "| f16 token, commands | 182 | 116 commands | 0.64, better |"
point "a count that became worse" says "| f16 token, barriers | 180 | 200 barriers | 1.11, worse |"
point "a figure that moved by 4 % is only among all figures" says_once 'f16 tg128' 1
point "a piece that was not run, and why" says "| generation | llama-bench is not installed |"
point "a piece that is missing" says "| tune | not run, or not complete |"
point "without earlier results" scripts/gpu-check --page "$scratch/new"
point "the page says so" says "There is no earlier run to compare with."
point "an unknown piece" refuses "there is no piece 'everything'; the pieces are: $(scripts/gpu-check --list)" everything
point "no time" refuses "--limit: '0' is not a positive number of seconds" --limit 0
point "a missing folder" refuses "--page: there is no folder '/proc/nonexistent'" --page /proc/nonexistent
point "a missing driver" refuses "--icd: there is no file /proc/nonexistent" --icd /proc/nonexistent --out "$scratch/none"

run() { # ARGUMENT…
    scripts/gpu-check --quick --no-build --build "$build" --icd "$icd" --out "$scratch/run" --before "$scratch/old" "$@"
}
interrupted() {
    output=$(run --limit 1 model-q8_0)
    echo "$output"
    case $output in *"not complete after"*"call it again"*) [ ! -e "$scratch/run/model-q8_0.done" ] ;; *) false ;; esac
}
if [ -x "$build/src/cli/tessera" ] && [ -e "$icd" ]; then
    point "the piece bench runs" run bench
    point "it is done, and has its file" test -s "$scratch/run/bench.json" -a -e "$scratch/run/bench.done"
    point "its page is written" test -s "$scratch/run/page.md"
    point "a piece that has no time left" interrupted
else
    skip "the piece bench" "there is no tool or no driver"
fi
plan
