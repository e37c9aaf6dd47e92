#!/bin/sh
# train_hosts.sh ROOT TESSERA: two stages on two hosts (network namespaces), with messages over TCP, have the losses of one process. If the rank
# of one host is killed, the other rank ends with a sentence that names it, whatever operation was waiting. Skipped if namespaces cannot be
# made.
set -u
tessera=$2
cd "$1" || exit 1
. tests/source/tap.sh
. tests/hosts/hosts.sh
make_hosts "stages on two hosts" "$@"
export MASTER_ADDR=10.98.0.1 TESSERA_MASTER_PORT=29512 TESSERA_TOKEN=0123456789abcdef
# Keep UCX from using shared memory, which two real hosts do not have.
export UCX_TLS=tcp,self UCX_NET_DEVICES=veth0

train() { # LOG OPTION…
    log=$1
    shift
    exec timeout 400 "$@" --data examples/data/tinyshakespeare.txt --held-out 0 --layers 2 --heads 2 --width 32 --context 16 --batch 8 --accumulate 2 \
        --log "$log"
}
start() { # OPTION…: rank r writes to out.r
    pids=
    for r in 0 1; do
        [ "$r" = 0 ] && host=$a || host=$b
        (RANK=$r WORLD_SIZE=2 TESSERA_BOOT=env train "$folder/log.$r" ip netns exec "$host" "$tessera" train --stages 2 "$@") >"$folder/out.$r" 2>&1 &
        pids="$pids $!"
    done
}
show() {
    cat "$folder"/out.?
}
same_losses() {
    (train "$folder/one.log" "$tessera" train --steps 6) >"$folder/out.one" 2>&1 || return 1
    start --steps 6
    for pid in $pids; do
        wait "$pid" || { show && return 1; }
    done
    awk 'function loss() { return substr($0, index($0, "\"loss\": ") + 8) + 0 }
        NR == FNR { want[FNR] = loss(); next }
        { d = loss() - want[FNR]; if (d > 1e-4 || -d > 1e-4) exit bad = 1; seen++ }
        END { exit bad || seen != 6 }' "$folder/one.log" "$folder/log.0"
}
end_of_first() {
    pids=${pids# }
    wait "${pids%% *}"
}
killed() {
    : >"$folder/log.0"
    start --steps 100000 --timeout 120
    wait_for '"step": 5,' "$folder/log.0" || { show && return 1; }
    victim=$(ip netns pids "$b" | while read -r pid; do
        [ "$(cat "/proc/$pid/comm")" = tessera ] && echo "$pid"
    done)
    kill -KILL "$victim"
    end_of_first
    ended=$?
    show
    [ "$ended" = 1 ] && grep -q "tessera: train: .*rank 1 is lost" "$folder/out.0"
}

point "two stages on two hosts have the losses of one process" same_losses
point "if the rank of the second host is killed, the first one says so" killed
plan
