#!/bin/sh
# netns.sh ROOT RANK INTRUDER: two network namespaces joined by a veth pair stand for two machines. Ranks meet across them, with a
# token; who has none, or another, is dropped; and who is not on the machine does not even reach a rendezvous on loopback. Needs root
# and iproute2; skipped, and said so, without.
set -u
rank=$2
intruder=$3
cd "$1" || exit 1
. tests/source/tap.sh

a=tsrA$$
b=tsrB$$
folder=$(mktemp -d)
clean_up() {
    ip netns delete "$a" 2>/dev/null
    ip netns delete "$b" 2>/dev/null
    rm -rf "$folder"
}
trap clean_up EXIT

set_up() {
    ip netns add "$a" && ip netns add "$b" &&
        ip -n "$a" link add veth0 type veth peer name veth0 netns "$b" &&
        ip -n "$a" address add 10.98.0.1/24 dev veth0 && ip -n "$b" address add 10.98.0.2/24 dev veth0 &&
        ip -n "$a" link set veth0 up && ip -n "$b" link set veth0 up &&
        ip -n "$a" link set lo up && ip -n "$b" link set lo up
}
if ! set_up >"$folder/set_up" 2>&1; then
    skip "ranks in two network namespaces" "they cannot be made here: $(head -n 1 "$folder/set_up")"
    plan
    exit
fi

# What the tests themselves were started by is no matter.
unset PMIX_NAMESPACE PMIX_RANK TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
export WORLD_SIZE=2 TESSERA_BOOT=env TESSERA_MASTER_PORT=29511 TESSERA_TOKEN=0123456789abcdef TEST_TIMEOUT_MS=20000 TEST_LOG=1

wait_for() { # TEXT FILE
    for _ in $(seq 200); do
        grep -q "$1" "$2" && return
        sleep 0.05
    done
    cat "$2"
    false
}
start_zero() { # ADDRESS
    MASTER_ADDR=$1 RANK=0 ip netns exec "$a" "$rank" >"$folder/zero" 2>&1 &
    zero=$!
}

across() {
    start_zero 10.98.0.1
    # Rank 0 needs a moment to listen.
    for _ in $(seq 200); do
        ip netns exec "$b" "$intruder" 10.98.0.1 29511 look 2>/dev/null && break
        sleep 0.05
    done
    ip netns exec "$b" "$intruder" 10.98.0.1 29511 garbage || return 1
    # The right number, the right rank, the wrong token; and none at all.
    MASTER_ADDR=10.98.0.1 RANK=1 TESSERA_TOKEN=fedcba9876543210 TEST_TIMEOUT_MS=300 ip netns exec "$b" "$rank" \
        >"$folder/wrong" 2>&1 && return 1
    MASTER_ADDR=10.98.0.1 RANK=1 TESSERA_TOKEN='' ip netns exec "$b" "$rank" >"$folder/none" 2>&1 && return 1
    MASTER_ADDR=10.98.0.1 RANK=1 ip netns exec "$b" "$rank" >"$folder/one" 2>&1
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
        grep 'dropped 10.98.0.2:[0-9]*: it does not speak this protocol' "$folder/zero" &&
        grep 'dropped 10.98.0.2:[0-9]*: as rank 1 it has another TESSERA_TOKEN' "$folder/zero" &&
        grep 'rank 0 has another TESSERA_TOKEN' "$folder/wrong" &&
        grep 'TESSERA_TOKEN is not set, but 10.98.0.1:29511 is on another machine' "$folder/none"
}
# Rank 0 on loopback, a stranger on the other machine who would reach any other address of it.
loopback_is_closed() {
    start_zero 127.0.0.1
    for _ in $(seq 200); do
        ip netns exec "$a" "$intruder" 127.0.0.1 29511 look 2>/dev/null && break
        sleep 0.05
    done
    ip netns exec "$b" "$intruder" 10.98.0.1 29511 garbage
    [ $? = 3 ] || return 1
    MASTER_ADDR=127.0.0.1 RANK=1 ip netns exec "$a" "$rank" || return 1
    wait "$zero"
}

point "two machines meet in spite of strangers" across
point "each knows where the ranks are" met
point "the strangers were dropped, with the reason" logged
point "a rendezvous on loopback is not reached from outside" loopback_is_closed
plan
