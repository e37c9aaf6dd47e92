# shellcheck shell=sh
# Sets up two network namespaces joined by a veth pair, which stand for two machines: $a has 10.98.0.1 and $b has 10.98.0.2 on veth0. A
# script sources this file from the root of the sources and passes its own arguments. Needs iproute2, and root or the right to make a user
# namespace. Otherwise the test NAME is skipped.
#
#     make_hosts NAME "$@"
folder=
end_hosts() {
    ip netns delete "$a" 2>/dev/null
    ip netns delete "$b" 2>/dev/null
    rm -rf "$folder"
}
set_up_hosts() {
    ip netns add "$a" && ip netns add "$b" &&
        ip -n "$a" link add veth0 type veth peer name veth0 netns "$b" &&
        ip -n "$a" address add 10.98.0.1/24 dev veth0 && ip -n "$b" address add 10.98.0.2/24 dev veth0 &&
        ip -n "$a" link set veth0 up && ip -n "$b" link set veth0 up &&
        ip -n "$a" link set lo up && ip -n "$b" link set lo up && is_up "$a" && is_up "$b"
}
# Waits until the link is up, which takes the kernel a moment.
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
    a=tsrA$$
    b=tsrB$$
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
