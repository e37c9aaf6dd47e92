#!/bin/sh
# run.sh RELAY DELAY_US BITS_PER_SECOND RANKS COMMAND…: runs COMMAND on two hosts (network namespaces) that are joined by a slow link, as RANKS
# processes on each, or, as 3+5, on the first and on the second. For measurements by hand, from the root of the sources:
#
#     tests/hosts/run.sh build/tests/hosts/relay 100 1e9 2 build/src/cli/tessera bench all-reduce
#
# Rank 0 writes to the terminal, the others to files, whose last lines are shown if a rank fails.
set -u
skip() {
    echo "$1: $2"
}
plan() {
    exit 77
}
relay=$1 delay=$2 bandwidth=$3 ranks=$4
shift 4
. tests/hosts/hosts.sh
make_hosts "ranks on two hosts" "$relay" "$delay" "$bandwidth" "$ranks" "$@"
. tests/hosts/relay.sh
slow_link "$delay" "$bandwidth" || {
    cat "$folder/relay"
    exit 1
}
export TESSERA_BOOT=env TESSERA_MASTER_PORT=29511 TESSERA_TOKEN=0123456789abcdef WORLD_SIZE=$((${ranks%+*} + ${ranks#*+}))
each=${ranks%+*} pids=
# shellcheck disable=SC2086 # several numbers
trap 'kill $pids 2>/dev/null; end_slow_link; end_hosts' EXIT
for r in $(seq $((WORLD_SIZE - 1)) -1 0); do
    [ "$r" -lt "$each" ] && host=$a local=$r || host=$b local=$((r - each))
    (
        [ "$r" = 0 ] || exec >"$folder/out.$r" 2>&1
        RANK=$r LOCAL_RANK=$local exec ip netns exec "$host" "$@"
    ) &
    pids="$pids $!"
done
code=0
for pid in $pids; do
    wait "$pid" || code=1
done
[ "$code" = 0 ] || tail -n 3 "$folder"/out.*
exit "$code"
