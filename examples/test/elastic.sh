#!/bin/sh
# elastic.sh TESSERA HELLO_ELASTIC: a rank is killed, the other ranks continue, and a new process joins them.
set -u
out=$(timeout 100 "$1" launch -n 3 --respawn 1 -- "$2" 1 100 2>&1) || {
    echo "$out"
    exit 1
}
echo "$out"
echo "$out" | grep -q '^\[0\] step 100: 2 ranks$' && echo "$out" | grep -q '^\[0\] step [1-5][0-9]*: 3 ranks$' &&
    echo "$out" | grep -q '^\[0\] step 600: the mean is about 4\.[0-9]$'
