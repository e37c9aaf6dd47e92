# shellcheck shell=sh
# TAP output of shell scripts. `point NAME COMMAND…` is one test, which passes if the command succeeds; otherwise the command's output
# goes to standard error. `plan` must be called last.
points=0
failures=0

point() {
    name=$1
    shift
    points=$((points + 1))
    if output=$("$@" 2>&1); then
        echo "ok $points - $name"
    else
        failures=$((failures + 1))
        echo "not ok $points - $name"
        printf '%s: %s\n' "$name" "$output" >&2
    fi
}

skip() {
    points=$((points + 1))
    echo "ok $points - $1 # SKIP $2"
}

plan() {
    echo "1..$points"
    [ "$failures" = 0 ]
}
