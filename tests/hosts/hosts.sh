# shellcheck shell=sh
# Sets up network namespaces, which stand for machines: host N of $host_count (default: 2, at most 8) is the namespace that `host N` prints,
# and has 10.98.0.N on veth0. Two hosts, which are also called $a and $b, are joined by a veth pair, and more by a bridge in a namespace of
# its own. A script sources this file from the root of the sources and passes its own arguments. Needs iproute2, and root or the right to
# make a user namespace. Otherwise the test NAME is skipped.
#
#     make_hosts NAME "$@"
folder=
host_count=${host_count-2}
host() {
    echo "tsr$1-$$"
}
a=$(host 1)
b=$(host 2)
end_hosts() {
    for number in $(seq 0 "$host_count"); do
        ip netns delete "$(host "$number")" 2>/dev/null
    done
    rm -rf "$folder"
}
set_up_hosts() {
    for number in $(seq "$host_count"); do
        ip netns add "$(host "$number")" && ip -n "$(host "$number")" link set lo up || return
    done
    if [ "$host_count" = 2 ]; then
        ip -n "$a" link add veth0 type veth peer name veth0 netns "$b"
    else
        make_bridge
    fi || return
    for number in $(seq "$host_count"); do
        ip -n "$(host "$number")" address add "10.98.0.$number/24" dev veth0 && ip -n "$(host "$number")" link set veth0 up || return
    done
    for number in $(seq "$host_count"); do
        is_up "$(host "$number")" || return
    done
}
make_bridge() {
    switch=$(host 0)
    ip netns add "$switch" && ip -n "$switch" link add bridge0 type bridge && ip -n "$switch" link set bridge0 up || return
    for number in $(seq "$host_count"); do
        ip -n "$(host "$number")" link add veth0 type veth peer name "port$number" netns "$switch" &&
            ip -n "$switch" link set "port$number" master bridge0 && ip -n "$switch" link set "port$number" up || return
    done
}
# Waits until the link is up. The kernel may need a moment.
is_up() {
    for _ in $(seq 1500); do
        ip -n "$1" -o link show veth0 | grep -q 'LOWER_UP.* state UP ' && return
        sleep 0.02
    done
    echo "the link of $1 does not come up"
    false
}
make_hosts() {
    without=$1
    shift
    if [ "$(id -u)" != 0 ] && [ -z "${TEST_UNSHARED-}" ] && unshare -Urnm mount -t tmpfs none /run 2>/dev/null; then
        # shellcheck disable=SC2016 # for the inner shell
        TEST_UNSHARED=yes exec unshare -Urnm sh -c 'mount -t tmpfs none /run && exec "$0" "$@"' "$0" "$@"
    fi
    folder=$(mktemp -d)
    trap end_hosts EXIT
    trap 'exit 1' HUP INT TERM
    # Removes the variables by which the tests themselves may have been started.
    unset PMIX_NAMESPACE PMIX_RANK TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
    set_up_hosts >"$folder/set_up" 2>&1 && return
    skip "$without" "they cannot be made here: $(head -n 1 "$folder/set_up")"
    plan
    exit
}
on() { # HOST COMMAND…
    ip netns exec "$@"
}

# fails_within MS COMMAND…: succeeds if the command fails within this time.
fails_within() {
    limit=$1
    shift
    from=$(date +%s%N)
    "$@" && return 1
    took=$((($(date +%s%N) - from) / 1000000))
    echo "after $took ms"
    [ "$took" -le "$limit" ]
}
# wait_for TEXT FILE: waits until the file contains the text, for 60 s at most.
wait_for() {
    for _ in $(seq 3000); do
        grep -qs "$1" "$2" && return
        sleep 0.02
    done
    cat "$2"
    false
}
