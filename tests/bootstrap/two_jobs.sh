#!/bin/sh
# two_jobs.sh ROOT RANK INTRUDER: two jobs of one user that have the same MASTER_PORT and no token are started in every order. Each
# process must get the bytes of its own job, or fail soon with an error that names the cause. The two jobs run copies of RANK under two
# names.
set -u
rank=$2
cd "$1" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
unset MASTER_ADDR TESSERA_MASTER_PORT TESSERA_TOKEN TESSERA_JOB_ID PMIX_NAMESPACE PMIX_RANK TORCHELASTIC_RUN_ID SLURM_JOB_ID
export WORLD_SIZE=2 TESSERA_BOOT=env TEST_TIMEOUT_MS=4000
cp "$rank" "$folder/a" && cp "$rank" "$folder/b" || exit 1
first_port=$(($$ % 10000 + 20000))

# run NAME PORT JOB RANK PROGRAM: runs one process; its output, errors and exit status go to files called NAME.
run() {
    RANK=$4 MASTER_PORT=$2 TEST_JOB=$3 timeout 30 "$folder/$5" >"$folder/$1.out" 2>"$folder/$1.err"
    echo $? >"$folder/$1.status"
}

# well NAME RANK: the process has joined its own job twice and received the right bytes.
well() {
    [ "$(cat "$folder/$1.status")" = 0 ] && [ "$(grep -c "^rank $2 of 2," "$folder/$1.out")" = 2 ] && [ ! -s "$folder/$1.err" ]
}
# explained NAME: the process has failed with one of the errors in docs/launching.md.
explained() {
    [ "$(cat "$folder/$1.status")" = 1 ] || return 1
    grep -qE 'Address already in use; TESSERA_MASTER_PORT chooses another port$' "$folder/$1.err" ||
        grep -qE 'was refused by rank 0 of another job at .*: rank 0 runs another executable, .*TESSERA_JOB_ID' "$folder/$1.err" ||
        grep -qE 'rank 0, which listens on .*, is still waiting for these of 2 ranks: 1' "$folder/$1.err" ||
        grep -qE 'could not join rank 0 at .*, within 4.0 s: Connection refused' "$folder/$1.err"
}

# start NUMBER PROCESS…: starts the processes of both jobs in this order. NUMBER distinguishes the orders.
start() {
    number=$1
    shift
    for process in "$@"; do
        program=${process%?}
        job=1
        [ "$program" = a ] || job=2
        run "$number.$process" $((first_port + 2 * number)) "$job" "${process#?}" "$program" &
        sleep 0.03
    done
    wait
}
# check NUMBER PROCESS…: checks that each process has succeeded or explained its failure, and that at least one job has
# succeeded.
check() {
    number=$1
    shift
    successes=0
    for process in "$@"; do
        if well "$number.$process" "${process#?}"; then
            successes=$((successes + 1))
        elif ! explained "$number.$process"; then
            echo "$process: status $(cat "$folder/$number.$process.status")"
            cat "$folder/$number".*.out "$folder/$number".*.err
            return 1
        fi
    done
    [ "$successes" -ge 2 ] || cat "$folder/$number".*.err
    [ "$successes" -ge 2 ]
}

# One executable with two values of TESSERA_JOB_ID: rank 1 of the second job is refused, and no message contains the values.
two_job_ids() {
    TESSERA_JOB_ID=morning run ids.0 $((first_port + 60)) 1 0 a &
    sleep 0.2
    TESSERA_JOB_ID=evening run ids.1 $((first_port + 60)) 2 1 a
    TESSERA_JOB_ID=morning run ids.2 $((first_port + 60)) 1 1 a
    wait
    cat "$folder"/ids.*.out "$folder"/ids.*.err
    grep -q 'was refused by rank 0 of another job at .*: rank 0 has another TESSERA_JOB_ID;' "$folder/ids.1.err" &&
        ! grep -qE 'morning|evening' "$folder"/ids.*.err && well ids.0 0 && well ids.2 1
}
# Two executables that form one job.
one_job_of_two_programs() {
    TESSERA_JOB_ID=mine run both.0 $((first_port + 62)) 1 0 a &
    TESSERA_JOB_ID=mine run both.1 $((first_port + 62)) 1 1 b
    wait
    cat "$folder"/both.*.err
    well both.0 0 && well both.1 1
}
second_rank_zero() {
    run zero.0 $((first_port + 64)) 1 0 a &
    sleep 0.3
    run zero.1 $((first_port + 64)) 1 0 a
    wait
    cat "$folder/zero.1.err"
    grep -q 'rank 0 cannot listen on 127.0.0.1:.*: Address already in use' "$folder/zero.1.err"
}

orders="
a0 a1 b0 b1
a0 a1 b1 b0
a0 b0 a1 b1
a0 b0 b1 a1
a0 b1 a1 b0
a0 b1 b0 a1
a1 a0 b0 b1
a1 a0 b1 b0
a1 b0 a0 b1
a1 b0 b1 a0
a1 b1 a0 b0
a1 b1 b0 a0
b0 a0 a1 b1
b0 a0 b1 a1
b0 a1 a0 b1
b0 a1 b1 a0
b0 b1 a0 a1
b0 b1 a1 a0
b1 a0 a1 b0
b1 a0 b0 a1
b1 a1 a0 b0
b1 a1 b0 a0
b1 b0 a0 a1
b1 b0 a1 a0
"
# The processes mostly wait, so six orders run at a time.
number=0
while read -r order; do
    [ -n "$order" ] || continue
    # shellcheck disable=SC2086 # words
    start "$number" $order &
    number=$((number + 1))
    [ $((number % 6)) != 0 ] || wait
done <<EOF
$orders
EOF
number=0
while read -r order; do
    [ -n "$order" ] || continue
    # shellcheck disable=SC2086 # words
    point "in the order $order" check "$number" $order
    number=$((number + 1))
done <<EOF
$orders
EOF
point "two values of TESSERA_JOB_ID" two_job_ids
point "two executables with one TESSERA_JOB_ID" one_job_of_two_programs
point "a second rank 0 says that the first one listens" second_rank_zero
plan
