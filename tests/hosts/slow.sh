#!/bin/sh
# slow.sh ROOT SUMMING RELAY: four ranks on two hosts (network namespaces) reduce over a link with a delay of 1 ms, and over one of
# 100 Mbit/s. Skipped if namespaces or the link cannot be made.
set -u
summing=$2
relay=$3
cd "$1" || exit 1
. tests/source/tap.sh
. tests/hosts/hosts.sh
make_hosts "ranks on two hosts with a slow link" "$@"
. tests/hosts/ranks.sh
. tests/hosts/relay.sh

received() { # HOST
    ip netns exec "$1" cat /sys/class/net/slow0/statistics/rx_bytes
}
# sums ROUNDS COUNT BYTES MS: checks that all sums are right, and that they came through the link: at least BYTES in
# each direction, in at least MS.
sums() { # ROUNDS COUNT BYTES MS
    from=$(date +%s%N)
    start_all "$1" "$2"
    wait_all
    took=$((($(date +%s%N) - from) / 1000000))
    show
    echo "$took ms; received: $(received "$a") and $(received "$b") bytes"
    [ "$well" = 4 ] && [ "$(received "$a")" -ge "$3" ] && [ "$(received "$b")" -ge "$3" ] && [ "$took" -ge "$4" ]
}

if slow_link 1000 0; then
    point "sums of 100 over a link of 1 ms" sums 50 100 20000 50
    point "sums of 100,000 over a link of 1 ms" sums 20 100000 8000000 20
    end_slow_link
    slow_link 0 100000000
    linked=$?
    point "a link of 100 Mbit/s" [ "$linked" = 0 ]
    point "sums of 100,000 over a link of 100 Mbit/s" sums 10 100000 4000000 300
else
    skip "sums over a slow link" "the link cannot be made here: $(head -n 1 "$folder/relay")"
fi
plan
