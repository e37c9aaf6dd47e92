#!/bin/sh
# many.sh ROOT SUMMING HELLO_ELASTIC: ranks on three and four hosts (network namespaces) reduce over TCP, and continue without hosts that
# are lost or cut off; a process on another host joins. Skipped if namespaces cannot be made.
set -u
summing=$2
hello_elastic=$3
cd "$1" || exit 1
. tests/source/tap.sh
host_count=4
. tests/hosts/hosts.sh
make_hosts "ranks on four hosts" "$@"
placement='1 1 2 2 3 3'
. tests/hosts/ranks.sh

place() { # HOST…
    placement=$*
    WORLD_SIZE=$#
}
sums() { # COUNT HOST…
    count=$1
    shift
    place "$@"
    start_all 100 "$count"
    wait_all
    show
    [ "$well" = "$#" ]
}
# only RANK…: checks that exactly these ranks, in this order, have continued and ended well.
only() { # RANK…
    new=0
    for rank in "$@"; do
        goes_on "$rank" "$new" "$#" || return 1
        new=$((new + 1))
    done
    [ "$well" = "$#" ]
}
# host_is_lost COUNT: kills both ranks of a host at once, as if it had lost its power.
host_is_lost() { # COUNT
    place 1 1 2 2 3 3
    TEST_TIMEOUT_MS=20000 TEST_SHRINK_MS=20000 start_all 100000000 "$1"
    all_ready || return 1
    kill_rank 2
    kill_rank 3
    wait_all
    show
    only 0 1 4 5
}
# host_is_cut_off HOST RANK…: drops the host's packets, while its interface stays up. It has two of six ranks, so the
# others continue.
host_is_cut_off() { # HOST RANK…
    cut_off=$1
    shift
    place 1 1 2 2 3 3
    TEST_TIMEOUT_MS=1500 TEST_SHRINK_MS=6000 start_all 100000000 10
    all_ready || return 1
    ip -n "$(host 0)" link set "port$cut_off" nomaster || return 1
    wait_all
    ip -n "$(host 0)" link set "port$cut_off" master bridge0
    show
    only "$@" && [ "$(grep -l '^cannot go on: TSR_ERR_' "$folder"/err.? | wc -l)" = 2 ]
}
# A process on the fourth host joins three ranks, and then one of the four is lost.
joins() {
    place 1 2 3
    pids=
    for r in 0 1 2; do
        RANK=$r on "$(host $((r + 1)))" "$hello_elastic" 1 300 >"$folder/out.$r" 2>"$folder/err.$r" &
        pids="$pids $!"
    done
    TESSERA_BOOT='join' on "$(host 4)" "$hello_elastic" >"$folder/out.3" 2>"$folder/err.3" &
    pids="$pids $!"
    wait_all
    show
    [ "$well" = 3 ] && grep -q '^step [0-9]*: 4 ranks$' "$folder/out.0" && grep -q '^step 300: 3 ranks$' "$folder/out.0" &&
        grep -q '^step 600: the mean is about 4\.[0-9]$' "$folder/out.0"
}

point "sums on three hosts of one rank" sums 100 1 2 3
point "sums on three hosts of two, one and one rank" sums 100000 1 1 2 3
point "sums on four hosts of two ranks" sums 100 1 1 2 2 3 3 4 4
point "large sums on four hosts of two ranks" sums 100000 1 1 2 2 3 3 4 4
point "one of three hosts is lost" host_is_lost 10
point "one of three hosts is lost in large sums" host_is_lost 100000
point "the last of three hosts is cut off" host_is_cut_off 3 0 1 2 3
point "the first of three hosts is cut off" host_is_cut_off 1 2 3 4 5
point "a process on a fourth host joins, and a rank is lost" joins
plan
