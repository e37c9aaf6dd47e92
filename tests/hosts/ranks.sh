# shellcheck shell=sh
# Ranks of $summing on hosts: $placement has the number of the host of each rank (default: two ranks on each of two hosts). A script sources
# this file after make_hosts.
: "${summing:?}" "${folder:?}"
placement=${placement-1 1 2 2}
# shellcheck disable=SC2086 # several numbers
WORLD_SIZE=$(echo $placement | wc -w)
export WORLD_SIZE TESSERA_BOOT=env MASTER_ADDR=10.98.0.1 TESSERA_MASTER_PORT=29511 TESSERA_TOKEN=0123456789abcdef
# Prevents the use of shared memory, which two real hosts do not have.
export UCX_TLS=tcp,self UCX_NET_DEVICES=veth0

# start_all ROUNDS COUNT: rank r writes to out.r and err.r.
start_all() {
    pids=
    r=0
    rm -f "$folder"/out.? "$folder"/err.? # otherwise the output of earlier ranks could be read
    for number in $placement; do
        RANK=$r ip netns exec "$(host "$number")" "$summing" "$@" >"$folder/out.$r" 2>"$folder/err.$r" &
        pids="$pids $!"
        r=$((r + 1))
    done
}
# Waits for all ranks. Sets `well` to the number of ranks that succeeded.
wait_all() {
    well=0
    for pid in $pids; do
        wait "$pid" && well=$((well + 1))
    done
}
show() {
    cat "$folder"/out.? "$folder"/err.?
}
all_ready() {
    for r in $(seq 0 $((WORLD_SIZE - 1))); do
        wait_for ready "$folder/out.$r" && continue
        show
        return 1
    done
}
kill_rank() { # RANK
    r=0
    for pid in $pids; do
        [ "$r" = "$1" ] && kill -9 "$pid"
        r=$((r + 1))
    done
}
# goes_on RANK NEW-RANK SIZE: checks that the rank has continued as NEW-RANK of SIZE ranks, and ended well.
goes_on() { # RANK NEW-RANK SIZE
    grep -q "^rank $2 of $3, .*: well$" "$folder/out.$1"
}
