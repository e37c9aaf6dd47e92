#!/bin/sh
# Mistakes that drivers for the CPU hide: programs of the GPU suite on a driver that runs commands, invocations and workgroups in another
# order, lets each command access only what it has declared, and puts pages that fault around buffers (tests/gpu/driver/driver.h). The
# modules that the driver got, in which all specialization constants have their values, are validated.
. "$(dirname "$0")/lane.sh"
install_missing spirv-tools
build_with gcc && compile_kernels_once || exit 1
modules=$root/build/gcc/modules
rm -rf "$modules"
run_suites build/gcc adversary
status=$?
validate() {
    . tests/source/tap.sh
    point "the driver got modules" test "$(find "$modules" -name '*.spv' | wc -l)" -gt 100
    point "every module is valid" sh -c "find '$modules' -name '*.spv' -print0 |
        xargs -0 -n 1 -P $(nproc) spirv-val --target-env vulkan1.3 --scalar-block-layout"
    plan
}
run_tap validate && [ "$status" = 0 ]
