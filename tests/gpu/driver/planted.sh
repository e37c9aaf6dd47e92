#!/bin/sh
# planted.sh PROGRAM: each mode of the test driver notices the mistake that it is made for, and without the mode the mistake changes nothing.
set -u
program=$1
. "$(dirname "$0")/../../source/tap.sh"

# MESSAGE VARIABLE=VALUE… -- MISTAKE: the program fails with this message.
notices() {
    message=$1
    shift
    output=$(env "$@" 2>&1)
    status=$?
    echo "status $status: $output"
    [ $status = 1 ] && case $output in *"$message"*) ;; *) false ;; esac
}

own_memory='TESSERA_SEPARATE_MEMORY=1 TESSERA_LABELS=1'
order='TEST_DRIVER_ORDER=reversed'
access="TEST_DRIVER_ACCESS=1 $own_memory"
end="TEST_DRIVER_FENCE=end $own_memory"
start="TEST_DRIVER_FENCE=start $own_memory"
invocations='TEST_DRIVER_INVOCATIONS=1'
for mistake in none hazard hidden barrier; do
    point "without a mode, the results with the mistake '$mistake' are right" "$program" "$mistake"
done
# shellcheck disable=SC2086 # several variables
for mode in "$order" TEST_DRIVER_ORDER=7 "$access" "$end" "$start" "$invocations" "$access TEST_DRIVER_FENCE=end $order $invocations"; do
    point "a program without mistakes passes with $mode" env $mode "$program" none
done
# shellcheck disable=SC2086 # several variables
{
    point "$order notices a missing barrier between commands" notices 'the results are wrong' $order "$program" hazard
    point "$access notices a hidden access" notices ', which it has not declared: kernel ' $access "$program" hidden
    point "$end notices an index beyond the end" notices 'byte 16384 of a buffer of 16384 bytes' $end "$program" beyond
    point "$start notices an index before the start" notices 'byte -4 of a buffer of 16384 bytes' $start "$program" before
    point "$invocations notices a missing barrier in a shader" notices 'the results are wrong' $invocations "$program" barrier
    both="$access TEST_DRIVER_FENCE=end $invocations"
    point "$both notices a hidden access" notices ', which it has not declared: kernel ' $both "$program" hidden
    point "$both notices an index beyond the end" notices 'byte 16384 of a buffer of 16384 bytes' $both "$program" beyond
    point "$both notices a missing barrier in a shader" notices 'the results are wrong' $both "$program" barrier
}
plan
