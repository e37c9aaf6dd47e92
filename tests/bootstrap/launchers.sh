#!/bin/sh
# launchers.sh ROOT RANK INTRUDER TOOL PMIX SUMMING: checks that real processes, started by the installed launchers,
# join their job and reduce. TOOL is tessera, or empty; PMIX is 1 if the library was built with PMIx; SUMMING is empty
# in a build without UCX.
set -u
rank=$2
intruder=$3
tool=$4
pmix=$5
summing=$6
cd "$1" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT TESSERA_MASTER_PORT TESSERA_TOKEN TESSERA_BOOT PMIX_NAMESPACE PMIX_RANK
# For the address sanitizer: suppresses the leaks of PMIx, and records enough of each stack to recognise them.
printf 'leak:PMIx_Init\nleak:PMIx_Fence_nb\n' >"$folder/leaks"
export LSAN_OPTIONS="suppressions=$folder/leaks:print_suppressions=0"
export ASAN_OPTIONS="${ASAN_OPTIONS-}:fast_unwind_on_malloc=0:malloc_context_size=30"

# all_joined COUNT PREFIX: checks that every rank has printed its place twice, as the program `rank` does.
all_joined() {
    sed "s/^$2//" "$folder/out" | sort | uniq -c >"$folder/counts"
    for r in $(seq 0 $(($1 - 1))); do
        grep -q "^ *2 rank $r of $1, local $r of $1, node 0 of 1\$" "$folder/counts" || {
            cat "$folder/out"
            return 1
        }
    done
}
# all_well COUNT PREFIX: checks that every rank has printed its place once, as the program `summing` does.
all_well() {
    [ "$(sed "s/^$2//" "$folder/out" | grep -c "^rank [0-9]* of $1, local [0-9]* of $1: well\$")" = "$1" ] || {
        cat "$folder/out"
        return 1
    }
}
under_launch() {
    "$tool" launch -n "$1" "$rank" >"$folder/out" && all_joined "$1" '\[ *[0-9]*\] '
}
under_mpirun() {
    mpirun --allow-run-as-root --map-by :OVERSUBSCRIBE -n "$1" "$rank" >"$folder/out" && all_joined "$1" ''
}
sums_under_launch() {
    "$tool" launch -n "$1" "$summing" 50 1000 >"$folder/out" && all_well "$1" '\[ *[0-9]*\] '
}
# Checks that SIGHUP ends a rank, which fails if UCX has installed its own signal handlers. The ranks restore the
# default effect, because the process that runs the tests may ignore the signal.
hangup_ends_a_rank() {
    # shellcheck disable=SC2016 # for the shells of the ranks
    SUMMING=$summing READY=$folder/ready "$tool" launch -n 2 sh -c 'env --default-signal=HUP "$SUMMING" 1000000000 100 >"$READY.$RANK" & pid=$!
        until grep -q ready "$READY.$RANK" || ! kill -0 $pid; do sleep 0.02; done
        [ "$RANK" = 1 ] || kill -HUP $pid; wait $pid; echo "status $?"' >"$folder/out" 2>&1
    cat "$folder/out"
    grep -q '^.0. status 129$' "$folder/out" && grep -q '^.1. .*rank 0 is lost' "$folder/out"
}
# sums_under_mpirun LAUNCHER COUNT: the ranks reduce under mpirun or prterun.
sums_under_mpirun() {
    "$1" --allow-run-as-root --map-by :OVERSUBSCRIBE -n "$2" "$summing" 50 1000 >"$folder/out" && all_well "$2" ''
}
# Starts an agent that listens on a port, and sets $agent and $port. Other tests may use some of the ports. They are below those that the
# kernel gives to outgoing connections.
start_agent() {
    first=$(($$ % 10000 + 20000))
    for port in $(seq "$first" $((first + 50))); do
        "$intruder" 127.0.0.1 "$port" agent >"$folder/agent" 2>"$folder/agent.problem" &
        agent=$!
        until grep -q ready "$folder/agent"; do
            kill -0 "$agent" 2>/dev/null || continue 2
            sleep 0.02
        done
        return
    done
    cat "$folder/agent.problem"
    return 1
}
# Sets the variables of torchrun, with its agent at MASTER_PORT. No rank may connect to the agent or bind its port.
under_torchrun() {
    start_agent || return 1
    pids=
    for r in 0 1 2; do
        RANK=$r LOCAL_RANK=$r WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=$port \
            TORCHELASTIC_RUN_ID=x TORCHELASTIC_USE_AGENT_STORE=True "$rank" >"$folder/out.$r" &
        pids="$pids $!"
    done
    all_well=yes
    for pid in $pids; do
        wait "$pid" || all_well=no
    done
    kill "$agent"
    cat "$folder"/out.? >"$folder/out"
    [ "$all_well" = yes ] && [ "$(cat "$folder/agent")" = ready ] && all_joined 3 ''
}
# Without -r and -t, torch 1.13 fails under Python 3.11.
run_torchrun() {
    torchrun --nproc_per_node 3 -r 1 -t 1 --log_dir "$folder/torchrun" --master_addr 127.0.0.1 \
        --master_port $(($$ % 10000 + 21000)) --no_python "$rank" >"$folder/out" 2>"$folder/err"
}
really_under_torchrun() {
    [ "$torchrun_status" = 0 ] && all_joined 3 '\[default[0-9]*\]:' && return
    cat "$folder/err"
    false
}
# A rank that never joins is an error at the deadline. The error names the complete timeout, even if connecting to PMIx took part of it. The
# timeout here is 0.75 s, which is printed as 0.8; a nanosecond less would be printed as 0.7.
mpirun_names_its_deadline() {
    # shellcheck disable=SC2016 # for the shells of the ranks
    TEST_TIMEOUT_MS=750 RANK_PROGRAM=$rank mpirun --allow-run-as-root --map-by :OVERSUBSCRIBE -n 2 \
        sh -c 'if [ "$PMIX_RANK" = 1 ]; then sleep 2; else "$RANK_PROGRAM"; fi' >"$folder/out" 2>&1
    grep -q 'bootstrap: PMIx: after 0\.8 s not all of 2 ranks have joined the exchange' "$folder/out" || {
        cat "$folder/out"
        return 1
    }
}

for count in 1 2 5; do
    if [ -n "$tool" ]; then
        point "tessera launch -n $count" under_launch "$count"
    fi
    if [ "$pmix" = 0 ]; then
        skip "mpirun -n $count" "this build has no PMIx"
    elif command -v mpirun >/dev/null; then
        point "mpirun -n $count" under_mpirun "$count"
    else
        skip "mpirun -n $count" "there is no mpirun"
    fi
done
if [ -n "$summing" ]; then
    for count in 2 5; do
        if [ -n "$tool" ]; then
            point "sums under tessera launch -n $count" sums_under_launch "$count"
        fi
        # prterun is the base of mpirun in Open MPI 5.
        for launcher in mpirun prterun; do
            if [ "$pmix" = 1 ] && command -v "$launcher" >/dev/null; then
                point "sums under $launcher -n $count" sums_under_mpirun "$launcher" "$count"
            fi
        done
    done
fi
if [ -n "$summing" ] && [ -n "$tool" ]; then
    point "a hangup ends a rank" hangup_ends_a_rank
fi
point "the variables of torchrun" under_torchrun
if command -v torchrun >/dev/null; then
    torchrun_status=0
    run_torchrun || torchrun_status=$?
    if grep -q 'use_libuv was requested but PyTorch was build without libuv' "$folder/err"; then
        # Debian 13's torchrun starts no program, whatever USE_LIBUV is.
        skip "torchrun" "this torchrun needs libuv, without which its PyTorch was built"
    else
        point "torchrun" really_under_torchrun
    fi
else
    skip "torchrun" "there is no torchrun"
fi
if [ "$pmix" = 1 ] && command -v mpirun >/dev/null; then
    point "a deadline under mpirun" mpirun_names_its_deadline
fi
plan
