# shellcheck shell=sh
# Four ranks of $summing, two on each of the hosts $a and $b. A script sources this file after make_hosts.
: "${summing:?}" "${folder:?}" "${a:?}" "${b:?}"
export WORLD_SIZE=4 TESSERA_BOOT=env MASTER_ADDR=10.98.0.1 TESSERA_MASTER_PORT=29511 TESSERA_TOKEN=0123456789abcdef
# Prevents shared memory, which two hosts do not have.
export UCX_TLS=tcp,self UCX_NET_DEVICES=veth0

# start_all ROUNDS COUNT: rank r writes to out.r and err.r.
start_all() {
    pids=
    rm -f "$folder"/out.? "$folder"/err.? # or the former ranks' words could be read
    for r in 0 1 2 3; do
        [ "$r" -lt 2 ] && host=$a || host=$b
        RANK=$r ip netns exec "$host" "$summing" "$@" >"$folder/out.$r" 2>"$folder/err.$r" &
        pids="$pids $!"
    done
}
# Waits for all ranks. `well` is the number of ranks that succeeded.
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
    for r in 0 1 2 3; do
        wait_for ready "$folder/out.$r" && continue
        show
        return 1
    done
}
