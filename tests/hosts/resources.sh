#!/bin/sh
# resources.sh ROOT SUMMING TOOL: communicators with a small, full or read-only /dev/shm, and with few file descriptors. TOOL is tessera,
# or empty. A mount namespace has another /dev/shm; without the right to make one, these tests are skipped.
set -u
summing=$2
tool=$3
cd "$1" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
unset MASTER_ADDR TESSERA_MASTER_PORT TESSERA_TOKEN TESSERA_JOB_ID PMIX_NAMESPACE PMIX_RANK UCX_TLS UCX_POSIX_DIR
export WORLD_SIZE=2 TESSERA_BOOT=env MASTER_PORT=$(($$ % 10000 + 20000)) TEST_LOG=1

# Starts two ranks; their output goes to files called 0 and 1.
cat >"$folder/both" <<'EOF'
for r in 0 1; do
    RANK=$r "$SUMMING" 50 1000 >"$FOLDER/$r" 2>&1 &
done
wait
EOF
export SUMMING="$summing" FOLDER="$folder"

# with_shm OPTIONS COMMAND…: runs the command with a separate tmpfs as /dev/shm.
# shellcheck disable=SC2016 # for the inner shell
with_shm() {
    options=$1
    shift
    unshare "$make" sh -c 'mount -t tmpfs -o "$1" tmpfs /dev/shm || exit 99; shift; exec "$@"' sh "$options" "$@"
}
both_well() {
    cat "$folder/0" "$folder/1"
    grep -q '^rank 0 of 2, .*: well$' "$folder/0" && grep -q '^rank 1 of 2, .*: well$' "$folder/1"
}

# sums OPTIONS: checks that the sums are right, because UCX uses other memory than /dev/shm.
sums() { # OPTIONS
    with_shm "$1" sh "$folder/both"
    both_well && grep -q 'log: comm: /dev/shm has no room for UCX, which uses System V shared memory instead' "$folder/0" "$folder/1"
}
# fails OPTIONS CAUSE: makes UCX use /dev/shm by choosing its transports, and checks that the error names the cause and
# the remedies.
fails() { # OPTIONS, the cause
    UCX_TLS=posix,self with_shm "$1" sh "$folder/both"
    cat "$folder/0" "$folder/1"
    for r in 0 1; do
        grep -qE "UCX says: .*; /dev/shm $2.*--shm-size=1g.*UCX_POSIX_DIR.*UCX_TLS=" "$folder/$r" || return 1
    done
}
bench_fails() {
    UCX_TLS=posix,self with_shm size=1m env -u WORLD_SIZE -u TESSERA_BOOT "$tool" bench all-reduce --ranks 2 >"$folder/out" 2>&1 && return 1
    cat "$folder/out"
    grep -qE 'rank [01]: comm_create: .*; /dev/shm has .* MiB free' "$folder/out" && ! grep -q 'all-gather' "$folder/out"
}
few_files() {
    prlimit --nofile=16 sh "$folder/both"
    cat "$folder/0" "$folder/1"
    for r in 0 1; do
        grep -q 'comm_create: comm: UCX needs at least [0-9]* file descriptors, but this process has [0-9]* of 16 left' "$folder/$r" ||
            return 1
    done
}

point "too few file descriptors are named" few_files
make=-m
[ "$(id -u)" = 0 ] || make=-rm
if with_shm size=1m true 2>/dev/null; then
    point "sums with a small /dev/shm" sums size=1m
    point "sums if /dev/shm has room for one rank only" sums size=6m
    point "sums with a read-only /dev/shm" sums size=64m,ro
    point "a small /dev/shm is named" fails size=1m 'has [0-9.]* of 1.0 MiB free'
    point "a read-only /dev/shm is named" fails size=64m,ro 'is read-only'
    if [ -n "$tool" ] && ! "$tool" help bench | grep -q 'This build has no benchmarks'; then
        point "a benchmark passes the cause on" bench_fails
    fi
else
    skip "a small /dev/shm" "a mount namespace is not permitted"
fi
plan
