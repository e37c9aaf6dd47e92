#!/bin/sh
# Slurm: ranks started by a real Slurm on this machine, with and without PMIx.
# tests/bootstrap/slurm.sh starts it. Only this lane needs its packages, so it installs them. A machine that cannot run Slurm fails here.
. "$(dirname "$0")/lane.sh"
install_missing slurm-wlm slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge
build_with gcc || exit 1
run_tap tests/bootstrap/slurm.sh "$root" "$root/build/gcc/tests/bootstrap/rank" "$root/build/gcc/tests/hosts/summing" "$root/build/gcc"
