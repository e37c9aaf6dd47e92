#!/bin/sh
# cpu_drivers.sh ROOT: what the library knows of drivers for the CPU is in src/gpu/device/traits.h and src/gpu/cpu_drivers.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

sources() { # PATTERN: the lines that match, in sources outside src/gpu/cpu_drivers
    find src bench -name '*.[ch]' -not -path 'src/gpu/cpu_drivers/*' -exec grep -nE "$1" {} +
}
kinds_of_drivers() { sources 'device_class|TSR__CLASS_' | grep -v '^src/gpu/device/'; }

found() { kinds_of_drivers_in_device=$(grep -lE 'TSR__CLASS_' src/gpu/device/*.[ch] | wc -l) && [ "$kinds_of_drivers_in_device" -gt 0 ]; }
no_kind() { ! kinds_of_drivers; }

# Without this check, the rules would hold if the names had changed.
point "the kinds of drivers are known by these names" found
point "kernels ask for traits, not for the kind of driver" no_kind
plan
