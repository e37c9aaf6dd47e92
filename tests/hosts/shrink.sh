#!/bin/sh
# shrink.sh ROOT SUMMING: four ranks on two hosts (network namespaces) reduce over TCP, and continue without ranks that are killed. If the
# link between the hosts breaks, the host with the lowest rank continues, and the other one does not. Skipped if namespaces cannot be made.
set -u
summing=$2
cd "$1" || exit 1
. tests/source/tap.sh
. tests/hosts/hosts.sh
make_hosts "ranks on two hosts" "$@"
. tests/hosts/ranks.sh

# killed COUNT RANK: kills the process of the rank. The three others must continue, across the hosts.
killed() { # COUNT RANK
    TEST_TIMEOUT_MS=20000 TEST_SHRINK_MS=20000 start_all 100000000 "$1"
    all_ready || return 1
    kill_rank "$2"
    wait_all
    show
    [ "$well" = 3 ] || return 1
    new=0
    for r in 0 1 2 3; do
        [ "$r" = "$2" ] && continue
        goes_on "$r" "$new" 3 || return 1
        new=$((new + 1))
    done
}
# Each host has half of the ranks, and the first host has the lowest rank. Packets between the hosts are dropped. The interface stays up,
# because the ranks of one host use it among themselves, too.
link_breaks() {
    TEST_TIMEOUT_MS=1000 TEST_SHRINK_MS=4000 start_all 100000000 10
    all_ready || return 1
    ip -n "$a" route add blackhole 10.98.0.2/32 && ip -n "$b" route add blackhole 10.98.0.1/32 || return 1
    wait_all
    show
    [ "$well" = 2 ] && goes_on 0 0 2 && goes_on 1 1 2 &&
        grep -q '^cannot go on: TSR_ERR_TIMEOUT: shrink: 2 of the 4 ranks that are not known to have ended took part' "$folder/err.2" &&
        grep -q '^cannot go on: TSR_ERR_TIMEOUT: shrink: ' "$folder/err.3"
}

point "without rank 0 of the first host" killed 10 0
point "without the last rank of the second host" killed 100000 3
point "only the host with the lowest rank goes on if the link breaks" link_breaks
plan
