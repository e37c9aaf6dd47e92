#!/bin/sh
# digits_usage.sh DIGITS: errors in a file or a command line are reported, with the line number in the file. Needs no device.
set -u
digits=$1
file=$(mktemp) || exit 1
trap 'rm -f "$file"' EXIT
failures=0

# refuses WORDS ARGUMENT...: the exit status is 2 and stderr contains WORDS.
refuses() {
    words=$1
    shift
    said=$("$digits" "$@" 2>&1 >/dev/null)
    status=$?
    case "$status:$said" in
    2:*"$words"*) ;;
    *)
        echo "digits $*: expected \"$words\" and status 2, got status $status: $said"
        failures=$((failures + 1))
        ;;
    esac
}

# `pixels` is the start of a line, to which tests add the last values. `good` is a valid line.
pixels=$(printf '0,%.0s' $(seq 62))
good="${pixels}0,16,9"
text() {
    # shellcheck disable=SC2059 # the formats are those below
    printf "$@" >"$file"
}

text ''
refuses "$file: no lines" "$file"
text '%s\n%s3,4,x\n' "$good" "$pixels"
refuses "$file:2: value 65 is not a number from 0 to 9" "$file"
text '%s\n%s\n%s\n' "$good" "$good" "${pixels}17,0,1"
refuses "$file:3: value 63 is 17; pixels go from 0 to 16" "$file"
text '%s\n' "${pixels}0,0,10"
refuses "$file:1: value 65 is 10; labels go from 0 to 9" "$file"
text '%s\n' "${pixels}0,0"
refuses "$file:1: 64 values instead of 65" "$file"
text '%s\n' "${pixels}0,0,1,2"
refuses "$file:1: more than 65 values" "$file"
text '%s\n\n%s\n' "$good" "$good"
refuses "$file:2: value 1 is not a number from 0 to 16" "$file"
text '%s\n' "${pixels}0,-1,2"
refuses "$file:1: value 64 is not a number" "$file"
text '%s\n' "${pixels}0,99999999999999999999,2"
refuses "$file:1: value 64 is not a number" "$file"
text '%s\n' "${pixels}0,1.5,2"
refuses "$file:1: value 64 is not a number" "$file"
text '%s\rx\n' "$good"
refuses "$file:1: a stray carriage return" "$file"
text '%s\n\0\n' "$good"
refuses "$file:2: value 1 is not a number" "$file"
refuses "/proc/nowhere/digits.csv: No such file" /proc/nowhere/digits.csv
refuses "digits: /: " /

refuses "unrecognized option '--fast'" --fast
refuses "--epochs takes a number from 0 to 100000, not -1" --epochs -1
refuses "--epochs takes a number from 0 to 100000, not 3x" --epochs=3x
refuses "option '--epochs' requires an argument" --epochs
refuses "--grid takes DATAxTENSOR ranks, as 2x1, not 2" --grid 2
refuses "--grid takes DATAxTENSOR ranks, as 2x1, not 0x1" --grid 0x1
refuses "a grid of 2x2 has 4 ranks, not 3" --ranks 3 --grid 2x2
refuses "--dtype takes f32, f16 or bf16, not f64" --dtype f64
refuses "--seed takes a whole number of 64 bits, not 9223372036854775808" --seed 9223372036854775808
refuses "--learning-rate takes a number from 0 to 1e+09, not nan" --learning-rate nan
refuses "--weight-decay takes a number from 0 to 1e+09, not 1e300" --weight-decay 1e300
refuses "--timeout takes a number from 0.001 to 1e+09, not 0" --timeout 0
refuses "--timeout takes a number from 0.001 to 1e+09, not 36893488148" --timeout 36893488148
refuses "--strategy takes none, full, layerwise, hybrid or weighted, not some" --strategy some
refuses "more than one FILE: b" a b

# Empty variables count as not set, so the missing program is the tool in PATH.
said=$(RANK='' PMIX_RANK='' TESSERA_TOOL='' PATH=/proc/nowhere "$digits" --ranks 2 2>&1)
case "$said" in
"digits: tessera: No such file or directory"*) ;;
*)
    echo "digits --ranks 2 with empty variables: $said"
    failures=$((failures + 1))
    ;;
esac

# Output that cannot be written is a failure.
said=$("$digits" --help 2>&1 >/dev/full)
status=$?
case "$status:$said" in
1:"digits: cannot write to standard output: No space left on device") ;;
*)
    echo "digits --help to a full disk: status $status: $said"
    failures=$((failures + 1))
    ;;
esac
"$digits" --help | grep -q '^usage: digits' || { echo "--help shows no usage"; failures=$((failures + 1)); }
[ "$failures" -eq 0 ]
