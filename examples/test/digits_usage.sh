#!/bin/sh
# digits_usage.sh DIGITS: what is wrong with a file or a command line is said, with the line. Needs no device.
set -u
digits=$1
file=$(mktemp) || exit 1
trap 'rm -f "$file"' EXIT
failures=0

# refuses WORDS ARGUMENT...: exit status 2 and WORDS on stderr.
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

# A good line, and one that ends in the given values instead.
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
refuses "/nowhere/digits.csv: No such file" /nowhere/digits.csv
refuses "digits: /: " /

refuses "unknown option --fast" --fast
refuses "--runs takes a number from 1 to 100000, not 0" --runs 0
refuses "--runs takes a number from 1 to 100000, not 3x" --runs=3x
refuses "--runs takes a number from 1 to 100000, not " --runs
refuses "--device takes a name" --device
refuses "one file only, not also b" a b

"$digits" --help | grep -q '^usage: digits' || { echo "--help shows no usage"; failures=$((failures + 1)); }
[ "$failures" -eq 0 ]
