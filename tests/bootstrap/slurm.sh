#!/bin/sh
# slurm.sh ROOT RANK SUMMING BUILD: real processes, started by a real Slurm, join their job and reduce. The test starts a Slurm of its own,
# with two nodes on one machine and its own daemons, key, ports and files; it touches no service of the machine. Needs the packages that
# tests/lanes/slurm.sh installs, and fails without them.
set -u
root=$1
rank=$2
summing=$3
build=$4
cd "$root" || exit 1
. tests/source/tap.sh

# until_true SECONDS COMMAND…: repeats the command until it succeeds, for SECONDS at most.
until_true() {
    tries=$(($1 * 20))
    shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.05
    done
}

gone() { # PID
    ! kill -0 "$1"
}

folder=$(mktemp -d)
chmod 755 "$folder"
daemons=
clean_up() {
    [ -f "$folder/slurm.conf" ] && timeout 10 scancel --user="$(id -un)" 2>/dev/null
    for pid in $daemons; do
        kill "$pid"
    done
    for pid in $daemons; do
        until_true 5 gone "$pid" || kill -KILL "$pid"
    done
    rm -rf "$folder"
} >/dev/null 2>&1
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

# Removes the variables by which the tests themselves may have been started.
for name in $(env | sed -n 's/^\(SLURM_[A-Z_0-9]*\|PMIX_[A-Z_0-9]*\)=.*/\1/p'); do
    unset "$name"
done
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT TESSERA_MASTER_PORT TESSERA_TOKEN TESSERA_BOOT TORCHELASTIC_RUN_ID
export SLURM_CONF="$folder/slurm.conf" TEST_TIMEOUT_MS=20000

# start NAME COMMAND…: starts a daemon that stays in the foreground, and keeps its log.
start() {
    name=$1
    shift
    "$@" >"$folder/$name.out" 2>&1 &
    daemons="$daemons $!"
}
host=$(hostname -s)
user=$(id -un)
port=$(($$ % 10000 + 17000))
configure_slurm() {
    mkdir "$folder/state" "$folder/n1" "$folder/n2"
    (umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
    cat >"$folder/slurm.conf" <<END
ClusterName=tessera
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
KillWait=2
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/%n
TmpFS=$folder/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n.pid
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2
PartitionName=test Nodes=ALL Default=YES MaxTime=5 State=UP OverSubscribe=FORCE:8
END
    # Disables cgroups. Older versions of Slurm do not know this setting; they look for cgroups unless a version is named.
    case $(/usr/sbin/slurmd -V) in
    *' 2'[0-2].*) echo 'CgroupPlugin=cgroup/v1' >"$folder/cgroup.conf" ;;
    *) echo 'CgroupPlugin=disabled' >"$folder/cgroup.conf" ;;
    esac
}
both_idle() {
    [ "$(sinfo -h -N -o %T | grep -c '^idle$')" = 2 ]
}
start_slurm() {
    start munged /usr/sbin/munged --foreground --force --num-threads=2 --key-file="$folder/munge.key" \
        --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" --seed-file="$folder/munged.seed" \
        --log-file="$folder/munged.log"
    until_true 10 test -S "$folder/munge.socket" || return 1
    start slurmctld /usr/sbin/slurmctld -D -c -f "$folder/slurm.conf"
    start n1 /usr/sbin/slurmd -D -N n1 -f "$folder/slurm.conf"
    start n2 /usr/sbin/slurmd -D -N n2 -f "$folder/slurm.conf"
    until_true 30 both_idle
}
slurm_runs() {
    [ "$running" = yes ] || tail -n 20 "$folder"/*.out "$folder/munged.log"
    [ "$running" = yes ]
}

# launched COMMAND…: runs the command with its output in the files `out` and `err`, and prints these if it fails.
launched() {
    timeout 60 "$@" >"$folder/out" 2>"$folder/err" || {
        echo "exit status $?"
        cat "$folder/out" "$folder/err"
        return 1
    }
}
# all_joined COUNT NODES: checks that every rank has printed its place twice, as the program `rank` does. For the ranks,
# all Slurm nodes of one machine are one node unless TESSERA_NODE names them.
all_joined() {
    sort "$folder/out" | uniq -c >"$folder/counts"
    [ "$(grep -c "^ *2 rank [0-9]* of $1, local [0-9]* of [0-9]*, node [0-9]* of $2\$" "$folder/counts")" = "$1" ] || {
        cat "$folder/out" "$folder/err"
        return 1
    }
}
under_srun() { # COUNT
    launched srun --mpi=pmix --overcommit --nodes=1 -n "$1" "$rank" && all_joined "$1" 1
}
on_two_nodes() {
    # shellcheck disable=SC2016 # for the shells of the ranks
    RANK_PROGRAM=$rank launched srun --mpi=pmix --overcommit --nodes=2 -n 5 --distribution=block \
        sh -c 'TESSERA_NODE=$SLURMD_NODENAME exec "$RANK_PROGRAM"' && all_joined 5 2 &&
        grep '^rank 4 of 5, local [01] of 2, node 1 of 2$' "$folder/out"
}
all_well() { # COUNT
    [ "$(grep -c "^rank [0-9]* of $1, local [0-9]* of [0-9]*: well\$" "$folder/out")" = "$1" ] || {
        cat "$folder/out" "$folder/err"
        return 1
    }
}
sums() { # COUNT
    launched srun --mpi=pmix --overcommit --nodes=1 -n "$1" "$summing" 50 1000 && all_well "$1"
}
sums_on_two_nodes() {
    # shellcheck disable=SC2016 # for the shells of the ranks
    SUMMING=$summing launched srun --mpi=pmix --overcommit --nodes=2 -n 4 \
        sh -c 'TESSERA_NODE=$SLURMD_NODENAME exec "$SUMMING" 50 1000' && all_well 4
}
# When a rank is killed, the others must name it long before their deadline, and the job must end.
names_who_was_killed() {
    # shellcheck disable=SC2016 # for the shells of the ranks
    SUMMING=$summing launched srun --mpi=pmix --overcommit --nodes=1 -n 3 --kill-on-bad-exit=0 \
        sh -c 'if [ "$SLURM_PROCID" = 2 ]; then exec timeout -s KILL 1 "$SUMMING" 1000000000 100; fi
            exec "$SUMMING" 1000000000 100' && return 1
    cat "$folder/err"
    [ "$(grep -c '^failed after [0-9]* ms: TSR_ERR_PEER_LOST: all_reduce .*rank 2' "$folder/err")" = 2 ]
}
logs_which_and_why() {
    TEST_LOG=1 launched srun --mpi=pmix --overcommit --nodes=1 -n 2 "$rank"
    cat "$folder/err"
    grep 'log: bootstrap: rank 1 of 2, .*, through PMIx: PMIX_NAMESPACE and PMIX_RANK are set$' "$folder/err"
}
# Without PMIx, each rank must find that it is a job of its own.
without_pmix() {
    launched srun --overcommit --nodes=1 -n 2 "$rank" && return 1
    grep '^TSR_ERR_INVALID: bootstrap: SLURM_STEP_NUM_TASKS is 2 but .*: start it with srun --mpi=pmix, or set TESSERA_BOOT=single$' \
        "$folder/err"
}
# Starts ranks as docs/launching.md describes for a Slurm without PMIx.
by_variables() {
    token=$(od -An -N 32 -tx1 /dev/urandom | tr -d ' \n')
    # shellcheck disable=SC2016 # for the shells of the ranks
    RANK_PROGRAM=$rank MASTER_ADDR=127.0.0.1 TESSERA_MASTER_PORT=$((port + 3)) TESSERA_TOKEN=$token \
        launched srun --overcommit --nodes=1 -n 3 sh -c \
        'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID exec "$RANK_PROGRAM"' && all_joined 3 1
}
in_a_batch() {
    printf '#!/bin/sh\n#SBATCH --ntasks=2 --overcommit --nodes=1\nsrun --overcommit --mpi=pmix "%s"\n' "$rank" >"$folder/job"
    timeout 60 sbatch --wait --quiet -D "$folder" -o "$folder/out" -e "$folder/err" "$folder/job"
    all_joined 2 1
}
# The batch script has SLURM_PROCID and SLURM_NTASKS, too, but must not count as a rank.
beside_a_batch() {
    # shellcheck disable=SC2016 # for the shell of the job
    printf '#!/bin/sh\n#SBATCH --ntasks=2 --overcommit --nodes=1\necho "$SLURM_PROCID $SLURM_NTASKS" >&2\n"%s"\n' "$rank" >"$folder/job"
    timeout 60 sbatch --wait --quiet -D "$folder" -o "$folder/out" -e "$folder/err" "$folder/job"
    all_joined 1 1 && grep '^0 2$' "$folder/err"
}
# If a rank never joins, the others must get an error at the deadline and not hang.
names_its_deadline() {
    # shellcheck disable=SC2016 # for the shells of the ranks
    TEST_TIMEOUT_MS=500 RANK_PROGRAM=$rank launched srun --mpi=pmix --overcommit --nodes=1 -n 2 --kill-on-bad-exit=1 \
        sh -c 'if [ "$SLURM_PROCID" = 1 ]; then exec sleep 5; else exec "$RANK_PROGRAM"; fi' && return 1
    grep 'bootstrap: PMIx: after 0.[345] s not all of 2 ranks have joined the exchange' "$folder/err"
}

# Runs the tutorial as it is written, with its job on both nodes.
tutorial() {
    TEST_HAVE=slurm sh tests/tutorials/run.sh "$root" "$build" docs/tutorials/slurm.md >"$folder/out" 2>&1 &&
        ! grep '# SKIP' "$folder/out" && return
    cat "$folder/out"
    return 1
}

configure_slurm
running=no
start_slurm >/dev/null 2>&1 && running=yes
point "a Slurm of two nodes starts" slurm_runs
if [ "$running" = yes ]; then
    for count in 1 2 5; do
        point "srun --mpi=pmix -n $count" under_srun "$count"
    done
    point "srun --mpi=pmix on two nodes" on_two_nodes
    point "sums under srun --mpi=pmix -n 2" sums 2
    point "sums under srun --mpi=pmix -n 5" sums 5
    point "sums on two nodes" sums_on_two_nodes
    point "a rank that is killed under srun" names_who_was_killed
    point "PMIx is chosen, and the log says why" logs_which_and_why
    point "the error names what srun without PMIx lacks" without_pmix
    point "variables made from Slurm's" by_variables
    point "sbatch" in_a_batch
    point "a process in the script of sbatch is alone" beside_a_batch
    point "the tutorial" tutorial
    point "a deadline under srun" names_its_deadline
fi
plan
