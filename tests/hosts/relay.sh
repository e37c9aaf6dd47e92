# shellcheck shell=sh
# Joins the two hosts by a second, slow link through the program $relay, and lets ranks use it: $a has 10.97.0.1 and $b has 10.97.0.2 on slow0.
# A script sources this file after make_hosts, and then calls
#
#     slow_link DELAY_US BITS_PER_SECOND          # 0: no delay, no limit
#
# It fails where there is no TUN device, and says why in $folder/relay.
: "${relay:?}" "${folder:?}" "${a:?}" "${b:?}"
relay_pid=
end_slow_link() {
    [ -z "$relay_pid" ] || kill "$relay_pid" && wait "$relay_pid" 2>/dev/null
    relay_pid=
}
slow_link() {
    end_slow_link
    rm -f "$folder/relay" # or the former relay's "ready" could be read
    "$relay" "$a" "$b" --delay "$1" --bandwidth "$2" >"$folder/relay" 2>&1 &
    relay_pid=$!
    trap 'end_slow_link; end_hosts' EXIT
    relay_is_ready &&
        ip -n "$a" address add 10.97.0.1/24 dev slow0 && ip -n "$b" address add 10.97.0.2/24 dev slow0 &&
        ip -n "$a" link set slow0 up && ip -n "$b" link set slow0 up || return 1
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
