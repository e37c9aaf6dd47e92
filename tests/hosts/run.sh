#!/bin/sh
# run.sh [--bind] [--mpi] RELAY DELAY_US BITS_PER_SECOND RANKS COMMAND…: runs COMMAND on hosts (network namespaces) that are joined by slow
# links, for measurements by hand, from the root of the sources:
#
#     tests/hosts/run.sh build/tests/hosts/relay 100 1e9 2 build/src/cli/tessera bench all-reduce
#
# RANKS is the number of processes on each of two hosts, or a list with the number for each host: 3+5, 2+2+2+2. With - instead of RELAY, the
# links are the kernel's own (veth), which are as fast as the kernel copies. --bind gives each host one processor, in turn, so that two
# hosts on a machine with two processors do not share them. --mpi starts the command with Open MPI's mpirun, with the options in OMPI_MCA_…
# and TCP between hosts; without it, the command is a job of tessera's. Rank 0 writes to the terminal, and the others write to files, whose
# last lines are shown if a rank fails.
set -u
skip() {
    echo "$1: $2"
}
plan() {
    exit 77
}
arguments=$*
bind=no mpi=no
while [ "${1-}" = --bind ] || [ "${1-}" = --mpi ]; do
    [ "$1" = --bind ] && bind=yes || mpi=yes
    shift
done
[ $# -ge 5 ] || {
    sed -n 's/^# run.sh/usage: run.sh/p' "$0" >&2
    exit 2
}
relay=$1 delay=$2 bandwidth=$3 ranks=$4
shift 4
case $ranks in
*+*) ;;
*) ranks=$ranks+$ranks ;;
esac
each=$(echo "$ranks" | tr + ' ')
# shellcheck disable=SC2086 # several numbers
host_count=$(echo $each | wc -w)
. tests/hosts/hosts.sh
# shellcheck disable=SC2086 # none of them has spaces but the command, which starts after them
make_hosts "ranks on hosts" $arguments
network=10.98.0 device=veth0
if [ "$relay" != - ]; then
    . tests/hosts/relay.sh
    slow_link "$delay" "$bandwidth" || {
        cat "$folder/relay"
        exit 1
    }
    network=10.97.0 device=slow0
fi
# on_host NUMBER COMMAND…: runs the command on this host.
cat >"$folder/on_host" <<END
number=\$1
shift
[ "$bind" = no ] || set -- taskset -c \$(((number - 1) % $(nproc))) "\$@"
# Processes of Open MPI on different hosts must not find each other's files and shared memory.
if [ "$mpi" = yes ]; then
    mkdir -p "$folder/tmp.\$number"
    export TMPDIR="$folder/tmp.\$number"
    set -- unshare -mu sh -c 'mount -t tmpfs none /dev/shm && hostname host'\$number' && exec "\$@"' sh "\$@"
fi
exec ip netns exec tsr\$number-$$ "\$@"
END
if [ "$mpi" = yes ]; then
    # mpirun runs on the first host, and starts its daemons by a program that is called like ssh: HOST COMMAND.
    # shellcheck disable=SC2016 # for that program
    printf '#!/bin/sh\nnumber=${1##*.}\nshift\nexec sh %s "$number" sh -c "$*"\n' "$folder/on_host" >"$folder/agent"
    chmod +x "$folder/agent"
    number=1
    for count in $each; do
        echo "$network.$number slots=$count" >>"$folder/hostfile"
        number=$((number + 1))
    done
    [ "$(id -u)" = 0 ] && set -- --allow-run-as-root "$@"
    # Open MPI's ranks always poll, so they must give other processes their processor.
    export OMPI_MCA_mpi_yield_when_idle=1
    sh "$folder/on_host" 1 mpirun --hostfile "$folder/hostfile" --bind-to none --mca plm_rsh_agent "$folder/agent" --mca oob_tcp_if_include $device \
        --mca btl self,vader,tcp --mca pml ob1 --mca btl_tcp_if_include $device "$@" &
    mpirun=$!
    # shellcheck disable=SC2064 # now
    trap "kill -9 $mpirun 2>/dev/null; [ '$relay' = - ] || end_slow_link; end_hosts" EXIT
    wait "$mpirun"
    exit
fi
export TESSERA_BOOT=env MASTER_ADDR=$network.1 TESSERA_MASTER_PORT=29511 TESSERA_TOKEN=0123456789abcdef UCX_TLS=tcp,self UCX_NET_DEVICES=$device
WORLD_SIZE=$(($(echo "$each" | tr ' ' +)))
export WORLD_SIZE
pids='' placement='' number=1
for count in $each; do
    for local in $(seq 0 $((count - 1))); do
        placement="$number:$local $placement" # the last rank first
    done
    number=$((number + 1))
done
# shellcheck disable=SC2086 # several numbers
trap 'kill $pids 2>/dev/null; [ "$relay" = - ] || end_slow_link; end_hosts' EXIT
r=$WORLD_SIZE
for place in $placement; do
    r=$((r - 1))
    (
        [ "$r" = 0 ] || exec >"$folder/out.$r" 2>&1
        RANK=$r LOCAL_RANK=${place#*:} exec sh "$folder/on_host" "${place%:*}" "$@"
    ) &
    pids="$pids $!"
done
code=0
for pid in $pids; do
    wait "$pid" || code=1
done
[ "$code" = 0 ] || tail -n 3 "$folder"/out.*
exit "$code"
