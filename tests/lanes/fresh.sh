#!/bin/sh
# fresh: packages built, installed, tested and purged, and the tutorials followed, in fresh Debian and Ubuntu systems. Not in `all`. It
# needs root, a network, and five minutes for each system. FRESH_SYSTEMS lists the releases; noble also needs Ubuntu's keys. Each system is
# made twice by debootstrap, below build/fresh: one copy builds the packages, the other has a user who follows the tutorials.
# shellcheck disable=SC2016,SC2317 # commands that other shells expand, and functions that `point` calls
. "$(dirname "$0")/lane.sh"
[ "$(id -u)" = 0 ] || fail "fresh: needs root, to make systems and to start programs in them"
install_missing debootstrap
: "${FRESH_SYSTEMS:=bookworm trixie noble}"
tutorials="install first-program own-kernel slurm two-gpus bench-report"

make_system() { # RELEASE FOLDER
    case $1 in
    noble)
        keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
        if [ ! -e "$keys" ]; then
            say "there is no $keys: Debian 12 has no package with Ubuntu's keys; extract it from Ubuntu's package ubuntu-keyring"
            return 1
        fi
        # debootstrap's script "gutsy" is used for all releases of Ubuntu since then.
        debootstrap --variant=minbase "--keyring=$keys" --components=main,universe "$1" "$2" http://archive.ubuntu.com/ubuntu gutsy
        ;;
    *) debootstrap --variant=minbase "$1" "$2" ;;
    esac
}
# inside FOLDER COMMAND…: runs the command as root of the system in FOLDER, in an environment of its own. The mounts end with the command.
inside() {
    unshare --mount --propagation private sh -c '
        system=$1
        shift
        mount -t proc proc "$system/proc" && mount --rbind /sys "$system/sys" && mount --rbind /dev "$system/dev" &&
            cp /etc/resolv.conf "$system/etc/" || exit 1
        exec chroot "$system" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive "$@"' sh "$@"
}
# Builds the packages as the tutorial says, in a copy of the tree.
build_packages() {
    mkdir -p "$folder/builder/root/packages/tessera"
    git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$folder/builder/root/packages/tessera" &&
        inside "$folder/builder" sh -ec 'apt-get -qq update
            apt-get -y -qq --no-install-recommends install dpkg-dev
            cd /root/packages/tessera
            apt-get -y -qq --no-install-recommends build-dep ./
            DEB_BUILD_OPTIONS="nocheck noautodbgsym" DEB_CFLAGS_APPEND=-g0 dpkg-buildpackage -us -uc -b'
}
# Makes a user who may use sudo, and whom apt asks no questions. Installs man-db, because debian/tests/control requires it. Copies the files
# of the source tree that the tests need to /srv, where they belong to root.
make_user() {
    mkdir -p "$folder/user/srv/packages" "$folder/user/srv/tree" &&
        cp "$folder"/builder/root/packages/*.deb "$folder/user/srv/packages/" &&
        cp -r --parents tests/tutorials tests/source docs/tutorials debian/tests "$folder/user/srv/tree/" &&
        inside "$folder/user" sh -ec 'apt-get -qq update
            apt-get -y -qq --no-install-recommends install sudo man-db
            useradd --create-home --shell /bin/sh reader
            echo "reader ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/reader
            echo "APT::Get::Assume-Yes \"true\";" >/etc/apt/apt.conf.d/99answers'
}
as_reader() { # COMMAND
    inside "$folder/user" su reader -c "$1"
}
# A second description of a driver makes a second device.
two_drivers='cp /usr/share/vulkan/icd.d/lvp_icd*.json /tmp/second.json
    VK_DRIVER_FILES=$(echo /usr/share/vulkan/icd.d/lvp_icd*.json):/tmp/second.json
    export VK_DRIVER_FILES VK_ICD_FILENAMES="$VK_DRIVER_FILES"'
follows() { # TUTORIAL
    drivers=
    [ "$1" = two-gpus ] && drivers=$two_drivers
    as_reader "$drivers
        TUTORIAL_FILES=/srv/packages TEST_HAVE=packages sh /srv/tree/tests/tutorials/run.sh /srv/tree installed /srv/tree/docs/tutorials/$1.md" \
        >"$folder/$1.tap" 2>&1 || { cat "$folder/$1.tap"; false; }
}
passes() { # TEST
    as_reader "sh /srv/tree/debian/tests/$1"
}
purges() {
    inside "$folder/user" sh -ec 'apt-get -y -qq purge libtessera0 libtessera-dev tessera tessera-examples
        left=$(find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /home -o -path /tmp -o -path /srv \) -prune -o -name "*tessera*" -print)
        [ -z "$left" ] || { echo "left: $left"; false; }'
}
check_system() { # RELEASE
    point "$1: a system is made" make_system "$1" "$folder/builder"
    point "$1: and copied" cp -a "$folder/builder" "$folder/user"
    point "$1: packages are built" build_packages
    point "$1: a user is made" make_user
    if [ "$failures" != 0 ]; then
        plan
        return
    fi
    for tutorial in $tutorials; do
        point "$1: the tutorial $tutorial" follows "$tutorial"
        sed -n 's/^ok [0-9]* - \(.*# SKIP\)/# not run: \1/p' "$folder/$tutorial.tap"
    done
    for test in digits generate; do
        point "$1: debian/tests/$test" passes "$test"
    done
    point "$1: a purge leaves nothing" purges
    plan
}
result=0
for system in $FRESH_SYSTEMS; do
    . tests/source/tap.sh
    folder=$root/build/fresh/$system
    rm -rf --one-file-system "$folder"
    mkdir -p "$folder"
    run_tap check_system "$system" || result=1
done
exit "$result"
