#!/bin/sh
# link.sh ROOT SUMMING: four ranks on two hosts (network namespaces) reduce over TCP. If the link between the hosts is down for a moment,
# the sums continue. If it stays down, every rank gets an error, at the deadline at the latest. Skipped if namespaces cannot be made.
set -u
summing=$2
cd "$1" || exit 1
. tests/source/tap.sh
. tests/hosts/hosts.sh
make_hosts "ranks on two hosts" "$@"
. tests/hosts/ranks.sh

across() { # COUNT
    start_all 200 "$1"
    wait_all
    show
    [ "$well" = 4 ] && grep -q '^rank 3 of 4, local 1 of 2: well$' "$folder/out.3"
}
over_a_gap() {
    TEST_TIMEOUT_MS=20000 start_all 2000 20000
    all_ready || return 1
    ip -n "$a" link set veth0 down && sleep 0.3 && ip -n "$a" link set veth0 up
    is_up "$a" && is_up "$b" || return 1
    wait_all
    show
    [ "$well" = 4 ]
}
# told_in_time RANK DEADLINE_MS: checks that the rank got an error that names the operation and a rank on the other
# host: not before the deadline, unless the other rank is lost, and within a bound that even a busy machine keeps; and
# that the rank then destroyed the communicator. Tests on one host (comm-failures) check that errors come within 100 ms
# of a deadline.
told_in_time() { # RANK DEADLINE_MS
    [ "$1" -lt 2 ] && others='[23]' || others='[01]'
    took=$(sed -n "s/^failed after \([0-9]*\) ms: TSR_ERR_\(TIMEOUT\|PEER_LOST\): all_reduce .* ranks\? $others.*/\1/p" "$folder/err.$1")
    gone=$(sed -n 's/^destroyed in \([0-9]*\) ms$/\1/p' "$folder/err.$1")
    [ "${took:-99999}" -le $(($2 + 10000)) ] && [ "${gone:-99999}" -le 10000 ]
}
for_good() { # COUNT
    TEST_TIMEOUT_MS=1500 start_all 100000000 "$1"
    all_ready || return 1
    ip -n "$b" link set veth0 down
    wait_all
    ip -n "$b" link set veth0 up && is_up "$a" && is_up "$b" || return 1
    show
    [ "$well" = 0 ] || return 1
    for r in 0 1 2 3; do
        told_in_time "$r" 1500 || return 1
    done
}
# killed COUNT RANK: kills a rank of one host. Every other rank must get an error that names the operation and the
# killed rank, and not an error because of the deadline.
killed() { # COUNT RANK
    TEST_TIMEOUT_MS=40000 start_all 100000000 "$1"
    all_ready || return 1
    kill_rank "$2"
    wait_all
    show
    [ "$well" = 0 ] || return 1
    for r in 0 1 2 3; do
        [ "$r" = "$2" ] || grep -q "TSR_ERR_PEER_LOST: all_reduce .*rank $2 is lost" "$folder/err.$r" || return 1
    done
}
# killed_meanwhile MS RANK DEADLINE_MS: kills a rank while the ranks connect, MS after it knows its place. The other
# ranks must end in time with an error, and not by a signal.
killed_meanwhile() { # MS RANK DEADLINE_MS
    TEST_TIMEOUT_MS=1500 TEST_CREATE_MS=$3 TEST_LOG=1 start_all 100000000 10
    wait_for "bootstrap: rank $2 of 4" "$folder/err.$2" && sleep "0.$(printf %03d "$1")"
    kill_rank "$2"
    i=0 well=0
    for pid in $pids; do
        wait "$pid"
        code=$?
        [ "$i" != "$2" ] && [ "$code" = 1 ] && well=$((well + 1))
        i=$((i + 1))
    done
    show
    [ "$well" = 3 ]
}
killed_while_connecting() {
    for ms in 0 15; do
        # on a busy machine, the first deadline may pass before the rank knows its place
        killed_meanwhile "$ms" 2 1500 || killed_meanwhile "$ms" 2 8000 || return 1
    done
}
point "sums of 100 over TCP between two hosts" across 100
point "sums of 100,000 over TCP between two hosts" across 100000
point "sums continue if the link is down for a moment" over_a_gap
point "small sums fail in time if the link stays down" for_good 10
point "large sums fail in time if the link stays down" for_good 1000000
point "the first rank of a host is killed" killed 10 2
point "the last rank of a host is killed" killed 1000000 1
point "a rank is killed while the ranks connect" killed_while_connecting
# The two hosts share processes and IPC. So UCX would use shared memory between them if it could, and messages would get
# lost; the library must prevent that.
parted() {
    unset UCX_TLS UCX_NET_DEVICES
    TEST_TIMEOUT_MS=20000 TEST_LOG=1 start_all 10 3000000
    wait_all
    show
    [ "$well" = 4 ] && grep -q 'ranks 0 and 2 share IPC, but not the network, so UCX uses no shared memory' "$folder/err.3"
}
parted_by_choice() {
    unset UCX_NET_DEVICES
    UCX_TLS=sm,tcp,self TEST_TIMEOUT_MS=20000 start_all 10 10
    wait_all
    show
    [ "$well" = 0 ] && [ "$(grep -l 'comm_create: ranks 0 and 2 share IPC .*set UCX_TLS=tcp,self' "$folder"/err.? | wc -l)" = 4 ]
}
point "two networks that share IPC" parted
point "two networks that share IPC, and UCX's transports are chosen" parted_by_choice
plan
