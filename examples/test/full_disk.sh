#!/bin/sh
# full_disk.sh PROGRAM [ARGUMENT...]: a program whose output cannot be written reports this and fails.
set -u
said=$("$@" 2>&1 >/dev/full)
status=$?
case "$status:$said" in
1:"standard output: No space left on device" | 1:*": cannot write to standard output: No space left on device") ;;
*)
    echo "status $status: $said"
    exit 1
    ;;
esac
