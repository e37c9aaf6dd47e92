# shellcheck shell=sh
# Joins the hosts by a second, slow network through the program $relay, and lets ranks use it: host N has 10.97.0.N on slow0. A script
# sources this file after make_hosts, and then calls
#
#     slow_link DELAY_US BITS_PER_SECOND          # 0: no delay, no limit
#
# It fails where there is no TUN device, and says why in $folder/relay.
: "${relay:?}" "${folder:?}" "${host_count:?}"
relay_pid=
end_slow_link() {
    [ -z "$relay_pid" ] || kill "$relay_pid" && wait "$relay_pid" 2>/dev/null
    relay_pid=
}
slow_link() {
    end_slow_link
    rm -f "$folder/relay" # otherwise the "ready" of an earlier relay could be read
    names=
    for number in $(seq "$host_count"); do
        names="$names $(host "$number")"
    done
    # shellcheck disable=SC2086 # several names
    "$relay" $names --delay "$1" --bandwidth "$2" >"$folder/relay" 2>&1 &
    relay_pid=$!
    trap 'end_slow_link; end_hosts' EXIT
    relay_is_ready || return 1
    for number in $(seq "$host_count"); do
        ip -n "$(host "$number")" address add "10.97.0.$number/24" dev slow0 && ip -n "$(host "$number")" link set slow0 up || return 1
    done
    export MASTER_ADDR=10.97.0.1 UCX_TLS=tcp,self UCX_NET_DEVICES=slow0
}
relay_is_ready() {
    for _ in $(seq 3000); do
        grep -qs ready "$folder/relay" && return
        kill -0 "$relay_pid" 2>/dev/null || return 1
        sleep 0.02
    done
    false
}
