#!/bin/sh
# Ranks started by a real Slurm, with and without PMIx: a small one that tests/bootstrap/slurm.sh makes on this machine. Its packages are
# installed here rather than for all lanes. A machine where it cannot run fails this lane.
. "$(dirname "$0")/lane.sh"
install_missing slurm-wlm slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge
build_with gcc || exit 1
run_tap tests/bootstrap/slurm.sh "$root" "$root/build/gcc/tests/bootstrap/rank" "$root/build/gcc/tests/hosts/summing"
