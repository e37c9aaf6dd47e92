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
# Like the programs of the lane. With this number, the buffer that is read starts at a page that faults, and the one that is written ends
# at one.
all="$access TEST_DRIVER_FENCE=1 $order $invocations"
for mistake in none hazard hidden barrier; do
    point "without a mode, the results with the mistake '$mistake' are right" "$program" "$mistake"
done
# shellcheck disable=SC2086 # several variables
for mode in "$order" TEST_DRIVER_ORDER=7 "$access" "$end" "$start" "$invocations" "$all"; do
    point "a program without mistakes passes with $mode" env $mode "$program" none
done
# shellcheck disable=SC2086 # several variables
{
    for mode in "$order" "$all"; do
        point "$mode notices a missing barrier between commands" notices 'the results are wrong' $mode "$program" hazard
    done
    for mode in "$access" "$all"; do
        point "$mode notices a hidden access" notices ', which it has not declared: kernel ' $mode "$program" hidden
    done
    for mode in "$end" "$all"; do
        point "$mode notices an index beyond the end" notices 'byte 16128 of a buffer of 16128 bytes' $mode "$program" beyond
    done
    for mode in "$start" "$all"; do
        point "$mode notices an index before the start" notices 'byte -4 of a buffer of 16128 bytes' $mode "$program" before
    done
    for mode in "$invocations" "$all"; do
        point "$mode notices a missing barrier in a shader" notices 'the results are wrong' $mode "$program" barrier
    done
}
plan
