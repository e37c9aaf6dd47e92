#!/bin/sh
# cpu_drivers.sh ROOT: what the library knows of drivers for the CPU is in src/gpu/device/traits.h and src/gpu/cpu_drivers, and the rest
# of the library reaches the latter through one header.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

outside() { # PATTERN: the lines that match, in sources outside src/gpu/cpu_drivers
    find src bench include -name '*.[ch]' -not -path 'src/gpu/cpu_drivers/*' -exec grep -nE "$1" {} +
}
other_headers() { outside '# *include *"gpu/cpu_drivers/' | grep -v '"gpu/cpu_drivers/cpu_drivers\.h"'; }
kinds_of_drivers() { outside 'device_class|TSR__CLASS_' | grep -v '^src/gpu/device/'; }

# Without this check, the rules would hold if the names had changed.
names_exist() {
    grep -q 'TSR__CLASS_' src/gpu/device/traits.h && [ "$(outside '"gpu/cpu_drivers/cpu_drivers\.h"' | wc -l)" -ge 10 ]
}
no_other_header() { ! other_headers; }
no_kind() { ! kinds_of_drivers; }

point "the header and the kinds of drivers have these names" names_exist
point "src/gpu/cpu_drivers is included through cpu_drivers.h only" no_other_header
point "kernels ask for traits, not for the kind of driver" no_kind
plan
