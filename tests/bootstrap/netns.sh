#!/bin/sh
# netns.sh ROOT RANK INTRUDER: two network namespaces joined by a veth pair stand for two machines. Ranks join across them with a token; a
# process without a token, or with another, is dropped; a rendezvous on loopback refuses other machines even if the kernel lets them reach
# it; a link that goes down is an error at the deadline. Needs iproute2, and root or the right to make a user namespace; skipped otherwise.
set -u
rank=$2
intruder=$3
cd "$1" || exit 1
. tests/source/tap.sh
. tests/hosts/hosts.sh
make_hosts "ranks in two network namespaces" "$@"
export WORLD_SIZE=2 TESSERA_BOOT=env TESSERA_MASTER_PORT=29511 TESSERA_TOKEN=0123456789abcdef TEST_TIMEOUT_MS=20000 TEST_LOG=1

start_zero() { # ADDRESS [ARGUMENT]
    MASTER_ADDR=$1 RANK=0 on "$a" "$rank" ${2+"$2"} >"$folder/zero" 2>&1 &
    zero=$!
}
# Waits until rank 0 listens.
look_until_it_listens() { # NAMESPACE ADDRESS
    for _ in $(seq 200); do
        on "$1" "$intruder" "$2" 29511 look 2>/dev/null && return
        sleep 0.05
    done
    cat "$folder/zero"
    false
}

across() {
    start_zero 10.98.0.1
    look_until_it_listens "$b" 10.98.0.1 || return 1
    on "$b" "$intruder" 10.98.0.1 29511 garbage || return 1
    # Starts a process with the right rank and a wrong token, and then one without a token.
    MASTER_ADDR=10.98.0.1 RANK=1 TESSERA_TOKEN=fedcba9876543210 TEST_TIMEOUT_MS=2000 on "$b" "$rank" \
        >"$folder/wrong" 2>&1 && return 1
    MASTER_ADDR=10.98.0.1 RANK=1 TESSERA_TOKEN='' on "$b" "$rank" >"$folder/none" 2>&1 && return 1
    MASTER_ADDR=10.98.0.1 RANK=1 on "$b" "$rank" >"$folder/one" 2>&1
    one=$?
    wait "$zero" && [ "$one" = 0 ]
}
met() {
    cat "$folder/zero" "$folder/one"
    grep '^rank 0 of 2, local 0 of 1, node 0 of 2$' "$folder/zero" &&
        grep '^rank 1 of 2, local 0 of 1, node 1 of 2$' "$folder/one"
}
logged() {
    cat "$folder/zero" "$folder/wrong" "$folder/none"
    grep 'dropped 10.98.0.2:[0-9]*: it closed the connection' "$folder/zero" &&
        grep 'dropped 10.98.0.2:[0-9]*: it does not use this protocol' "$folder/zero" &&
        grep 'dropped 10.98.0.2:[0-9]*: as rank 1 it has another TESSERA_TOKEN' "$folder/zero" &&
        grep 'rank 0 has another TESSERA_TOKEN' "$folder/wrong" &&
        grep 'TESSERA_TOKEN is not set, but 10.98.0.1:29511 is on another machine' "$folder/none"
}
# Rank 0 listens on loopback, and the intruder is on the other machine. At first it cannot reach rank 0. Then both machines are configured
# like some container networks, so that packets to 127.0.0.1 travel between them.
loopback_is_closed() {
    start_zero 127.0.0.1
    look_until_it_listens "$a" 127.0.0.1 || return 1
    on "$b" "$intruder" 10.98.0.1 29511 garbage
    [ $? = 3 ] || return 1
    for host in "$a" "$b"; do
        on "$host" sh -c 'echo 1 >/proc/sys/net/ipv4/conf/veth0/route_localnet' || return 1
    done
    ip -n "$b" address delete 127.0.0.1/8 dev lo && ip -n "$b" route add 127.0.0.1 via 10.98.0.1 dev veth0 || return 1
    on "$b" "$intruder" 127.0.0.1 29511 garbage || return 1
    # A process with the token must be dropped, too: a rendezvous on loopback is for one machine.
    MASTER_ADDR=127.0.0.1 RANK=1 TEST_TIMEOUT_MS=2000 on "$b" "$rank" >"$folder/far" 2>&1 && return 1
    MASTER_ADDR=127.0.0.1 RANK=1 on "$a" "$rank" && wait "$zero"
}
far_was_dropped() {
    cat "$folder/zero" "$folder/far"
    grep 'dropped 10.98.0.2:[0-9]*: it is not on this machine' "$folder/zero" &&
        grep '^TSR_ERR_TIMEOUT: rendezvous: rank 1 could not join rank 0 at 127.0.0.1, port 29511, within 2.0 s: .*it closed the' \
            "$folder/far"
}

join_from_b() { # MILLISECONDS [ARGUMENT]
    MASTER_ADDR=10.98.0.1 RANK=1 TEST_TIMEOUT_MS=$1 on "$b" "$rank" ${2+"$2"} >"$folder/one" 2>&1
}
without_a_link() {
    ip -n "$a" link set veth0 down || return 1
    TEST_TIMEOUT_MS=700 start_zero 10.98.0.1
    fails_within 20000 join_from_b 700
    slow=$?
    wait "$zero" && return 1
    ip -n "$a" link set veth0 up
    cat "$folder/zero" "$folder/one"
    [ "$slow" = 0 ] && grep 'rank 0, which listens on 10.98.0.1:29511, is still waiting for these of 2 ranks: 1' "$folder/zero" &&
        grep 'rank 1 could not join rank 0 at 10.98.0.1, port 29511, within 0.7 s' "$folder/one"
}
link_taken_down() {
    TEST_TIMEOUT_MS=2000 start_zero 10.98.0.1 1000000
    join_from_b 2000 1000000 &
    one=$!
    wait_for 'through the environment' "$folder/zero" && wait_for 'through the environment' "$folder/one" || return 1
    ip -n "$b" link set veth0 down || return 1
    fails_within 20000 wait "$zero" && fails_within 20000 wait "$one"
    slow=$?
    ip -n "$b" link set veth0 up
    cat "$folder/zero" "$folder/one"
    [ "$slow" = 0 ] && grep '^exchange [0-9]*: rendezvous: after 2.0 s these of 2 ranks have not joined the exchange: 1' "$folder/zero" &&
        grep '^exchange [0-9]*: rendezvous: rank 0 at 10.98.0.1:29511 has not answered rank 1 within 2.0 s' "$folder/one"
}

point "ranks on two machines join in spite of intruders" across
point "each rank has the node numbers of all ranks" met
point "the intruders were dropped, with the reason" logged
point "a rendezvous on loopback is closed to other machines" loopback_is_closed
point "a process that reached it was dropped" far_was_dropped
point "without a link, ranks fail at the deadline" without_a_link
point "a link that goes down between exchanges is noticed" link_taken_down
plan
