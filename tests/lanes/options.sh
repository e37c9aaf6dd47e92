#!/bin/sh
# Build options: builds in which any two values of two options meet, no warning, and the tests that each contains. One is by clang, with -O3
# and an unsigned char, which is arm64's.
# The lane `tests` tests the first build of options.txt, the default one. The others reuse its object files through ccache, and do not
# run the unit tests whose programs are the same as its own. From the GPU suite they run a little.
. "$(dirname "$0")/lane.sh"
array=tests/lanes/options.txt

# The programs of the suite `same` are, byte for byte, those of the default build.
same_programs() { # BUILD
    . tests/source/tap.sh
    for program in $(meson test -C "$1" --no-rebuild --list --suite same 2>/dev/null | sed -n 's|^tessera:[^ ]* / ||p'); do
        point "test-$program is that of the default build" cmp "$1/tests/test-$program" "build/gcc/tests/test-$program"
    done
    [ "$points" -gt 0 ] || point "there are programs to compare" false
    plan
}

# passes BUILD COMPILER VALUE…: builds it with these values of the options in the array's order, and runs its tests.
passes() {
    row=$1
    by=$2
    shift 2
    set -- "-Dvulkan=$1" "-Dshaderc=$2" "-Dcpu_kernels=$3" "-Ducx=$4" "-Dpmix=$5" "-Dtools=$6" "-Dbench=$7"
    say "$row: $by $*"
    [ "$by" = clang ] && set -- -Doptimization=3 -Dc_args=-funsigned-char "$@" # char is unsigned, as on arm64
    build_in "build/$row" "$by" -Dtests=enabled "$@" || return 1
    suites="unit exports"
    # Tests of deadlines mostly wait, so running them for each build would only cost time.
    without_suites="deadlines slow"
    if [ "$by" = gcc ]; then
        run_tap same_programs "build/$row" || return 1
        without_suites="$without_suites same"
    fi
    case " $* " in
    *' -Dvulkan=enabled '*) suites="$suites short" ;;
    esac
    # shellcheck disable=SC2086 # several words
    run_suites "build/$row" $suites
}

build_with gcc || exit 1
status=0
every_pair() {
    . tests/source/tap.sh
    point "any two values of two options meet in a build" awk -f tests/lanes/options.awk "$array"
    plan
}
run_tap every_pair || status=1
while read -r row by values <&3; do
    case $row in
    options-*)
        # shellcheck disable=SC2086 # several words
        passes "$row" "$by" $values || status=1
        ;;
    esac
done 3<"$array"
[ "$status" = 0 ]
