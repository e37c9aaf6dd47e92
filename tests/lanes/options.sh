#!/bin/sh
# Build options: builds in which any two values of two options meet. None may have a warning, and each runs the tests that it contains.
# Clang makes one of them, with -O3 and an unsigned char as on arm64. The first build of options.txt is the default one, which the lane
# `tests` tests. The others reuse its object files through ccache. They do not run unit tests whose programs are the same as in the default
# build, and only a little of the GPU suite.
. "$(dirname "$0")/lane.sh"
array=tests/lanes/options.txt

# Checks that the programs of the suite `same` are, byte for byte, those of the default build.
same_programs() { # BUILD
    . tests/source/tap.sh
    for program in $(meson test -C "$1" --no-rebuild --list --suite same 2>/dev/null | sed -n 's|^tessera:[^ ]* / ||p'); do
        point "test-$program is that of the default build" cmp "$1/tests/test-$program" "build/gcc/tests/test-$program"
    done
    [ "$points" -gt 0 ] || point "there are programs to compare" false
    plan
}

# passes BUILD COMPILER VALUE…: builds with these values of the options, in the order of the columns of options.txt, and runs the tests of the
# build.
passes() {
    row=$1
    by=$2
    shift 2
    set -- "-Dvulkan=$1" "-Dshaderc=$2" "-Dcpu_kernels=$3" "-Ducx=$4" "-Dpmix=$5" "-Dtools=$6" "-Dbench=$7"
    say "$by $*"
    [ "$by" = clang ] && set -- -Doptimization=3 -Dc_args=-funsigned-char "$@" # char is unsigned, as on arm64
    build_in "build/$row" "$by" -Dtests=enabled "$@" || return 1
    suites="unit exports"
    # Tests of deadlines mostly wait, and ranks on several hosts compute with code that no option changes once they have found each other,
    # which the tests of the bootstrap check in each build.
    without_suites="deadlines slow hosts"
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
# Each build begins with a configuration that uses a single processor, so two of them run at the same time. Their lines begin with the name of
# the build.
failed=build/options.failed
: >"$failed"
every_second_row() { # FIRST: 0 or 1
    number=0
    while read -r row by values <&3; do
        case $row in
        options-*) number=$((number + 1)) ;;
        *) continue ;;
        esac
        [ $((number % 2)) = "$1" ] || continue
        # shellcheck disable=SC2086 # several words
        { passes "$row" "$by" $values || echo "$row" >>"$failed"; } 2>&1 | sed -u "s/^/$row: /"
    done 3<"$array"
}
trap 'kill 0' INT # a list in the background ignores SIGINT
every_second_row 0 &
every_second_row 1
wait
[ "$status" = 0 ] && [ ! -s "$failed" ]
