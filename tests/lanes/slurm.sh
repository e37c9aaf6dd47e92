#!/bin/sh
# Slurm: ranks are started by a real Slurm on this machine, with and without PMIx. tests/bootstrap/slurm.sh starts Slurm. This lane installs
# Slurm's packages, because no other lane needs them. It fails on a machine that cannot run Slurm.
. "$(dirname "$0")/lane.sh"
install_missing slurm-wlm slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge
build_with gcc || exit 1
run_tap tests/bootstrap/slurm.sh "$root" "$root/build/gcc/tests/bootstrap/rank" "$root/build/gcc/tests/hosts/summing" "$root/build/gcc"
