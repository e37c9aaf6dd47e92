#!/bin/sh
# feedforward.sh FEEDFORWARD TESSERA RANKS: a small block from a generated file gives the same result over RANKS processes as in one
# process, and errors in a file or a command line are reported.
set -u
feedforward=$1
tessera=$2
ranks=$3
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failures=0

# runs DTYPE: RANKS processes give the result of one process.
runs() {
    file=$folder/$1.safetensors
    "$feedforward" --generate --width 64 --hidden 176 --dtype "$1" "$file" &&
        timeout 120 "$tessera" launch -n "$ranks" -- "$feedforward" --tokens 33 --runs 2 "$file"
}
for dtype in f32 f16 bf16; do
    if ! runs $dtype >"$folder/out" 2>&1 || ! grep -q 'one process .*: ok' "$folder/out"; then
        echo "$dtype over $ranks processes:"
        cat "$folder/out"
        failures=$((failures + 1))
    fi
done

# refuses STATUS WORDS ARGUMENT...: the exit status is STATUS and stderr contains WORDS.
refuses() {
    expected=$1
    words=$2
    shift 2
    said=$("$feedforward" "$@" 2>&1 >/dev/null)
    status=$?
    case "$status:$said" in
    $expected:*"$words"*) ;;
    *)
        echo "feedforward $*: expected \"$words\" and status $expected, got status $status: $said"
        failures=$((failures + 1))
        ;;
    esac
}
refuses 2 "missing FILE"
refuses 2 "more than one FILE: b" a b
refuses 2 "--tokens takes a number from 1 to 1048576, not 0" --tokens 0 a
refuses 2 "--dtype takes f32, f16 or bf16, not i8" --dtype i8 a
refuses 1 "/proc/nowhere/block.safetensors" /proc/nowhere/block.safetensors

said=$("$feedforward" --help 2>&1 >/dev/full)
status=$?
case "$status:$said" in
1:"feedforward: cannot write to standard output: No space left on device") ;;
*)
    echo "feedforward --help to a full disk: status $status: $said"
    failures=$((failures + 1))
    ;;
esac

# A file without a feed-forward block causes one error message.
header='{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
printf "\\0$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s\\0\\0\\0\\0" "$header" >"$folder/other.safetensors"
said=$("$feedforward" "$folder/other.safetensors" 2>&1)
expected="feedforward: $folder/other.safetensors has no parameter called …gate_proj.weight"
if [ "$said" != "$expected" ]; then
    echo "feedforward of a file without a block: expected \"$expected\", got: $said"
    failures=$((failures + 1))
fi
[ "$failures" -eq 0 ]
