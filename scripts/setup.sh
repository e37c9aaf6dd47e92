# shellcheck shell=sh
# Functions of the scripts in this repository: installing missing packages, fetching SwiftShader, configuring and building. A script
# sources this file, from any directory, after it has set `root` to the repository.

: "${root:?}"

say() {
    printf '%s\n' "$*"
}

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "this needs root, and there is no sudo: $*"
    fi
}

# Downloads the list of packages once per run, and only if a package has to be downloaded. All lanes of one run of run-tests, which sets
# $TESSERA_RUN to a name for the run, share this one download.
refresh_packages() {
    [ -n "${packages_are_fresh-}" ] && return
    [ -n "${TESSERA_RUN-}" ] && [ "$(cat "$root/build/packages.fresh" 2>/dev/null)" = "$TESSERA_RUN" ] && return
    as_root apt-get update -qq || fail "apt-get update failed"
    packages_are_fresh=yes
    mkdir -p "$root/build"
    printf '%s\n' "${TESSERA_RUN-}" >"$root/build/packages.fresh"
}

# install_missing PACKAGE…: prints and installs the packages that are not installed.
install_missing() {
    if ! command -v dpkg-query >/dev/null; then
        say "This is not Debian or Ubuntu: make sure that the equivalents of these packages are installed: $*"
        return
    fi
    missing=
    for package in "$@"; do
        case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in
        installed) ;;
        *) missing="$missing $package" ;;
        esac
    done
    [ -z "$missing" ] && return
    say "Installing:$missing"
    mkdir -p "$root/build"
    {
        flock 9 # lanes that run beside each other install in turn
        refresh_packages 9>&-
        # shellcheck disable=SC2086 # a list
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            $missing >/dev/null 9>&- || fail "could not install:$missing"
    } 9>"$root/build/packages.lock"
}

# Installs compilers and libraries for building everything.
install_build_packages() {
    # g++ links programs with libshaderc, which is C++.
    install_missing gcc g++ libc6-dev meson ninja-build pkg-config glslc libvulkan-dev libvulkan1 libshaderc-dev \
        glslang-dev spirv-tools libjansson-dev libedit-dev libmicrohttpd-dev libsodium-dev libutf8proc-dev libucx-dev \
        libpmix-dev
}

# Installs a Vulkan driver for the CPU, unless there is a driver already.
install_a_driver() {
    [ -n "${VK_DRIVER_FILES-}${VK_ICD_FILENAMES-}" ] && return
    for description in /usr/share/vulkan/icd.d/*.json /usr/local/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json; do
        [ -f "$description" ] && return
    done
    install_missing mesa-vulkan-drivers
}

# fetch_swiftshader FOLDER: extracts libvk_swiftshader.so and its json file from the package of a browser that contains them, without
# installing the browser. Prints a message and fails if no package contains them.
fetch_swiftshader() {
    [ -f "$1/vk_swiftshader_icd.json" ] && [ -f "$1/libvk_swiftshader.so" ] && return
    command -v dpkg-deb >/dev/null || {
        say "No SwiftShader: it is taken from a Debian package, and there is no dpkg here."
        return 1
    }
    fetch_folder=$(mktemp -d)
    for package in chromium-common chromium; do
        say "Fetching SwiftShader from the package $package (not installing it)"
        refresh_packages
        (cd "$fetch_folder" && apt-get download -qq -o APT::Sandbox::User=root "$package") || continue
        dpkg-deb -x "$fetch_folder/$package"_*.deb "$fetch_folder/tree" || continue
        library=$(find "$fetch_folder/tree" -name libvk_swiftshader.so)
        [ -z "$library" ] && continue
        mkdir -p "$1"
        cp "$library" "$(dirname "$library")/vk_swiftshader_icd.json" "$1/"
        break
    done
    rm -rf "$fetch_folder"
    [ -f "$1/vk_swiftshader_icd.json" ] || {
        say "No SwiftShader: neither chromium-common nor chromium of this distribution contains libvk_swiftshader.so."
        return 1
    }
}

# configure FOLDER OPTION…: sets up a build folder with these options, or changes an existing folder to them. Within one run of run-tests
# ($TESSERA_RUN), does nothing if the folder already has these options.
configure() {
    folder=$1
    shift
    asked="${TESSERA_RUN-} ${CC-} $*"
    [ -n "${TESSERA_RUN-}" ] && [ -f "$folder/build.ninja" ] && [ "$(cat "$folder.configured" 2>/dev/null)" = "$asked" ] && return
    rm -f "$folder.configured"
    if [ -f "$folder/build.ninja" ]; then
        set -- --reconfigure "$@"
    else
        rm -rf "$folder"
    fi
    mkdir -p "$(dirname "$folder")"
    meson setup "$@" "$folder" "$root" >"$folder.log" 2>&1 || {
        cat "$folder.log"
        return 1
    }
    if grep '^WARNING' "$folder.log"; then
        return 1
    fi
    printf '%s\n' "$asked" >"$folder.configured"
}

# build FOLDER [TARGET…]: builds everything, or these targets. Prints errors, and one line for each tenth of the steps.
build() {
    say "Building $1"
    {
        ninja -C "$@" 2>&1
        echo $? >"$1.status"
    } | tee "$1.log" | awk '
        /^\[[0-9]+\/[0-9]+\] / {
            split(substr($1, 2), step, "[/\\]]")
            if (step[1] * 10 >= (printed + 1) * step[2]) {
                printed = int(step[1] * 10 / step[2])
                printf "  %d of %d steps\n", step[1], step[2]
                fflush()
            }
        }'
    [ "$(cat "$1.status")" = 0 ] && return
    grep -v '^\[[0-9]*/[0-9]*\] ' "$1.log"
    return 1
}
