# shellcheck shell=sh
# Functions of all lanes. A lane is run by run-tests, or by hand. It builds in build/NAME and appends lines "passed failed skipped"
# to $TALLY. Its exit status is not 0 if it could not run its tests.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
. scripts/setup.sh
TALLY=${TALLY:-/dev/null}

# Sets $driver_options to the options for `configure`. Fails if there is no SwiftShader, unless it is waived.
# shellcheck disable=SC2034 # the lanes use it
find_drivers() {
    driver_options=
    if [ -n "${TESSERA_WITHOUT_SWIFTSHADER-}" ]; then
        say "SwiftShader is waived"
    elif fetch_swiftshader "$root/build/swiftshader"; then
        driver_options="-Dswiftshader_icd=$root/build/swiftshader/vk_swiftshader_icd.json"
    else
        say "Use --without-swiftshader to run the tests without it."
        return 1
    fi
}

# What compilers and drivers have made is kept for all builds and clones of this user, so that only the first run on a machine compiles
# everything. It is used again only for the same input and the same compiler or driver.
caches=${XDG_CACHE_HOME:-${HOME:-$root/build}/.cache}/tessera-tests
mkdir -p "$caches" 2>/dev/null || caches=$root/build

# Builds share object files through ccache, if it is installed. The paths in their commands are relative to folders of the same depth, so
# the commands are equal.
ccache=$(command -v ccache || true)
export CCACHE_DIR="${CCACHE_DIR:-$caches/ccache}"
export CCACHE_MAXSIZE="${CCACHE_MAXSIZE:-1G}"
# With CCACHE_DEPEND, ccache takes the names of included files from the compiler, and does not run the preprocessor a second time to find
# them.
export CCACHE_DEPEND=1

# Builds also share compiled shaders and what drivers make of them: Mesa compiles a kernel only once for all builds, benchmarks and
# packages.
export PATH="$root/tests/lanes/bin:$PATH"
export MESA_SHADER_CACHE_DIR="$caches/driver"
export KEPT_SHADERS="$caches/spirv" # for bin/glslc

# compile_with_ccache COMPILER [ARGUMENT…]: sets $ccache_options to the options for `configure` with which ccache runs this cross compiler.
# shellcheck disable=SC2034 # the lanes use it
compile_with_ccache() {
    ccache_options=
    [ -n "$ccache" ] || return
    mkdir -p build
    {
        echo '[binaries]'
        printf "c = ['%s'" "$ccache"
        printf ", '%s'" "$@"
        echo ']'
    } >"build/ccache-$1.ini"
    ccache_options="--cross-file build/ccache-$1.ini"
}

# configure_in FOLDER COMPILER [OPTION…]: configures a build without debug information, which would take a fifth of the time.
configure_in() {
    built=$1
    compiler=$2
    shift 2
    CC="${ccache:+ccache }$compiler" configure "$built" --werror -Ddebug=false "$@"
}

# build_in FOLDER COMPILER [OPTION…]: configures a build, and builds everything.
build_in() {
    configure_in "$@" && build "$1"
}

# Flags for line numbers in reports, but no variables. ccache finds object files of other clones only if they do not hold this clone's path.
# shellcheck disable=SC2034 # the lanes use it
line_numbers="-g1 -fdebug-prefix-map=$root=."

# build_with COMPILER [OPTION…]: builds everything in build/COMPILER, which all lanes without special needs share.
build_with() {
    build_in "build/$1" "$@"
}

# Sets $wrapper so that processes of the tests that need the same kernel at the same time compile it once. Other libraries that tests
# preload are in $preloaded.
# shellcheck disable=SC2034 # run_suites uses it
compile_kernels_once() {
    once=$root/build/compile_once.so
    gcc -std=gnu11 -D_GNU_SOURCE -O1 -shared -fPIC -o "$once" "$root/tests/lanes/compile_once.c" || return 1
    wrapper="env LD_PRELOAD=${preloaded:+$preloaded:}$once"
}

# run_suites FOLDER SUITE…: runs these suites together, except tests that are also in one of $without_suites. Prints a line for each test
# program when it ends, and counts every TAP point. A suite without tests is an error, because it means that the driver is missing.
run_suites() {
    folder=$1
    shift
    result=0
    suites=
    for suite in "$@"; do
        suites="$suites --suite $suite"
    done
    for suite in ${without_suites-}; do
        suites="$suites --no-suite $suite"
    done
    log=$folder/meson-logs/testlog${wrapper:+-${wrapper%% *}}.json # the name that meson gives it
    rm -f "$log"
    # Two tests more than there are processors run at the same time, because some tests mostly wait for other processes.
    # shellcheck disable=SC2086 # options
    {
        meson test -C "$folder" --no-rebuild --print-errorlogs --num-processes $(($(nproc) + 2)) $suites \
            --timeout-multiplier "${timeout_multiplier:-1}" ${wrapper:+--wrapper "$wrapper"} 2>&1
        echo $? >"$folder.status"
    } | tee "$folder.log" |
        grep --line-buffered -v '^ninja: \|^$\|^Ok:\|^Expected Fail:\|^Unexpected Pass:\|^Full log\|^>>> '
    [ "$(cat "$folder.status")" = 0 ] || result=1
    [ -e "$log" ] && awk -f tests/lanes/tally.awk "$log" | tee -a "$TALLY"
    for suite in "$@"; do
        # A test's name begins with its suites: "tessera:cli+unit / …".
        if ! grep -q "^{\"name\": \"tessera:[^ ]*\<$suite\>[^ ]* / " "$log"; then
            say "suite $suite: there are no tests, or none could be started"
            echo "0 1" >>"$TALLY"
            result=1
        fi
    done
    return "$result"
}

# run_tap COMMAND…: runs a program that prints TAP itself.
run_tap() {
    tap=$(mktemp)
    "$@" >"$tap"
    tap_status=$?
    cat "$tap"
    awk -v status="$tap_status" '
        /^ok / && !/# SKIP/ { passed++ }
        /^ok .*# SKIP/ { skipped++ }
        /^not ok / { failed++ }
        END { if (status != 0 && !failed) failed = 1; print passed + 0, failed + 0, skipped + 0; exit failed > 0 }
    ' "$tap" >>"$TALLY"
    tally_status=$?
    grep -q '^not ok ' "$tap" || [ "$tap_status" = 0 ] || echo "$* ended with status $tap_status" >&2
    rm -f "$tap"
    return "$tally_status"
}
