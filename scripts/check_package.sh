#!/usr/bin/env bash
# Installs the Debian packages into a fresh Debian, starts vudad there, lets two simulated programs share, tries every program, page and library
# where it is installed, upgrades, removes everything, and looks what is left.
#
#   scripts/check_package.sh [FOLDER-WITH-DEBS]    default build/package/deb, built by scripts/package.sh when it is not there
#
# As root, with debootstrap and access to Debian's mirror. With systemd-nspawn that works, the fresh Debian is booted and systemd runs the
# daemon; otherwise, or with --chroot, vudad is started as the user vuda in a chroot, and the units are only verified. --keep leaves
# the folder. VUDA_ROOT_CACHE names a folder in which the empty Debian is kept for the next time. lintian judges them if it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

mirror=${VUDA_MIRROR:-http://deb.debian.org/debian}
keep=no
boot=try
debs=
for word in "$@"; do
    case $word in
        --keep) keep=yes ;;
        --chroot) boot=no ;;
        -*)
            sed -n '2,11p' "$0" >&2
            exit 64
            ;;
        *) debs=$word ;;
    esac
done
[ "$(id -u)" -eq 0 ] || {
    echo "check_package.sh: must be root (debootstrap, chroot)" >&2
    exit 77
}
for tool in debootstrap dpkg-deb dpkg-architecture python3 readelf; do
    command -v "$tool" >/dev/null || {
        echo "check_package.sh: $tool is missing (apt-get install debootstrap dpkg-dev python3 binutils)" >&2
        exit 69
    }
done
if [ -z "$debs" ]; then
    debs=build/package/deb
    ls "$debs"/*.deb >/dev/null 2>&1 || scripts/package.sh "$debs"
fi
debs=$(realpath "$debs")
packages="vudad libvuda libvuda-dev vuda-probe-pair"

fail() {
    echo "$*"
    exit 1
}
say() { printf '\n== %s (%s)\n' "$*" "$(date +%H:%M:%S)"; }
work=$(mktemp -d)
root=$work/root
machine=
cleanup() {
    if [ -n "$machine" ]; then
        kill "$machine" 2>/dev/null || true
        wait "$machine" || true
    fi
    # Lazily where something that failed still runs in it.
    for mounted in proc dev; do
        if mountpoint -q "$root/$mounted"; then umount "$root/$mounted" 2>/dev/null || umount -l "$root/$mounted"; fi
    done
    if [ "$keep" = yes ]; then echo "kept: $work"; else rm -rf --one-file-system "$work"; fi
}
trap cleanup EXIT
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }

if command -v lintian >/dev/null; then
    say "lintian"
    lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$debs"/*.deb
fi

say "each file in its package"
python3 packaging/tests/check_files.py debs "$debs"
# A daemon's machine needs no Vulkan.
if dpkg-deb -f "$debs"/vudad_*.deb Depends | grep -i vulkan; then fail "vudad depends on Vulkan"; fi

say "a fresh Debian"
empty=${VUDA_ROOT_CACHE:-$work/empty}
if [ ! -e "$empty/etc/debian_version" ]; then
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus bookworm "$empty" "$mirror" >"$work/debootstrap.log" 2>&1 || {
        tail "$work/debootstrap.log"
        exit 1
    }
fi
cp -a "$empty" "$root"
# No service of the chroot's packages may start outside of it.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
mkdir -p "$root/debs/next"
cp "$debs"/*.deb "$root/debs"
# The next version, with another configuration.
for deb in "$debs"/*.deb; do
    dpkg-deb -R "$deb" "$work/next"
    sed -i 's/^Version: .*/&+next/; s/\(vuda[a-z-]* (= [^)]*\))/\1+next)/g' "$work/next/DEBIAN/control"
    if [ -e "$work/next/etc/vuda/vudad.toml" ]; then echo "# Of the next version." >>"$work/next/etc/vuda/vudad.toml"; fi
    dpkg-deb --root-owner-group -Znone -b "$work/next" "$root/debs/next" >/dev/null
    rm -r "$work/next"
done

say "install, with what the packages depend on"
inside apt-get update -q >"$work/apt.log" 2>&1
# What they depend on first, so that the list of files before has it.
depends=$(for deb in "$debs"/*.deb; do dpkg-deb -f "$deb" Depends; done | tr ',' '\n' | sed 's/([^)]*)//g; s/|.*//; s/ //g' | grep -vxF "${packages// /$'\n'}" | sort -u)
# Word-splitting is wanted.
# shellcheck disable=SC2086
inside apt-get install -q -y --no-install-recommends $depends man-db bash-completion >>"$work/apt.log" 2>&1 || {
    tail -n 20 "$work/apt.log"
    exit 1
}
list_files() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./sys -o -path ./tmp -o -path ./debs -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/systemd -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./run \) -prune -o -print | sort); }
accounts() { cat "$root/etc/passwd" "$root/etc/group" | sort; }
list_files >"$work/before"
accounts >"$work/accounts-before"
inside sh -c 'dpkg -i /debs/*.deb' 2>&1 | grep -v '^(Reading\|^Selecting\|^Preparing\|^Unpacking\|^Setting up\|^Processing' || true
for package in $packages; do
    # dpkg-query's own variables.
    # shellcheck disable=SC2016
    inside dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' "$package" | tee -a "$work/installed"
done
[ "$(grep -c ' installed$' "$work/installed")" -eq 4 ]
# shellcheck disable=SC2086
inside dpkg --verify $packages
# shellcheck disable=SC2016
inside dpkg-query -W -f '${Conffiles}\n' vudad | grep -q /etc/vuda/vudad.toml
inside id vuda
inside getent group vuda-admin
inside ldconfig -p | grep 'libvuda\.so\.0'
inside vudad --check-config --config /etc/vuda/vudad.toml
# With the manual pages that the units name.
inside systemd-analyze verify /lib/systemd/system/vudad.service /lib/systemd/system/vudad.socket /lib/systemd/system/vudad-handles.socket
for unit in vudad.service vudad.socket vudad-handles.socket; do
    [ "$(inside systemctl is-enabled "$unit")" = enabled ]
done

say "every program starts, every library finds what it needs, every page is found"
# shellcheck disable=SC2086
inside dpkg -L $packages | sort -u >"$work/files"
while read -r file; do
    if [ ! -f "$root$file" ] || [ -L "$root$file" ]; then continue; fi
    case $file in
        */bin/* | */sbin/* | *.so | *.so.*)
            needs=$(inside ldd "$file")
            if grep 'not found' <<<"$needs"; then fail "$file does not find what it needs"; fi
            if readelf -d "$root$file" | grep 'R\(UN\)\?PATH'; then fail "$file looks for libraries in a folder of its own"; fi
            ;;
        */man/*.gz)
            page=$(basename "$file" .gz)
            [ "$(inside man -w "${page##*.}" "${page%.*}")" = "$file" ] || fail "man does not find $page"
            # Of 80 columns it may keep what it formatted before, without the warnings.
            said=$(inside env MANWIDTH=100 man --warnings "${page##*.}" "${page%.*}" 2>&1 >"$work/page")
            if [ ! -s "$work/page" ] || [ -n "$said" ]; then fail "man $page: $said"; fi
            pages="${pages:-} $page"
            ;;
    esac
    case $file in
        */vuda-probe-pair | */vuda-sim-pair) ;; # for vuda-probe, not for people
        */bin/* | */sbin/*)
            inside "$file" --help >"$work/help" || fail "$file --help"
            [ -s "$work/help" ] || fail "$file --help says nothing"
            programs="${programs:-} $(basename "$file")"
            ;;
    esac
done <"$work/files"
echo "programs:${programs:-}; pages:${pages:-}"
# What the pages refer to: what is ours must be there.
for page in ${pages:-}; do
    inside env MANWIDTH=200 man "${page##*.}" "${page%.*}" 2>/dev/null | grep -o '\bvuda[a-z.-]*([0-9])' | tr '()' '. ' | tr -d ' '
done | sort -u | while read -r page; do
    case " $pages " in *" $page "*) ;; *) fail "a manual page refers to $page, which is not there" ;; esac
done
completed() { # WORDS...: what bash offers for the last one
    # The inner shell's variables.
    # shellcheck disable=SC2016
    inside bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader vudactl
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
        "$(complete -p vudactl | sed "s/.*-F \([^ ]*\).*/\1/")"; printf "%s\n" "${COMPREPLY[@]}"' bash "$@"
}
[ "$(completed vudactl run --fit)" = --fit-kernels ] || fail "bash does not complete vudactl run --fit"
[ "$(completed vudactl run --over-limit unsh)" = unshare ] || fail "bash does not complete vudactl run --over-limit unsh"

say "without a GPU"
if [ -e /dev/nvidiactl ]; then
    echo "NOT tested: what vuda-probe says where no driver is; there is one here"
else
    status=0
    said=$(inside vuda-probe limit 2>&1) || status=$?
    if [ $status -ne 69 ] || ! grep 'no NVIDIA driver' <<<"$said"; then fail "vuda-probe limit: $status, $said"; fi
fi
status=0
said=$(inside vuda-probe limit --device none 2>&1) || status=$?
if [ $status -eq 0 ] || grep 'cannot start\|loading shared' <<<"$said"; then fail "vuda-probe-pair does not start: $status, $said"; fi
echo "$said"

# What is done inside, by systemd or in the chroot. Exit status 0: all was as it should be.
cat >"$root/debs/session.sh" <<'SESSION'
set -eu
lib=$(dirname "$(find /usr/lib -name libvuda_preload.so)")
renderer= compute=
# Of one that failed nothing runs on.
trap 'for pid in $renderer $compute; do kill "$pid" 2>/dev/null || true; done' EXIT
wait_for() { # WORDS...: until the command succeeds, a minute at most
    n=0
    until "$@" >/dev/null 2>&1; do
        n=$((n + 1))
        [ $n -lt 600 ] || { echo "never came true: $*"; return 1; }
        sleep 0.1
    done
}
state_is() { vudactl status --json | grep -q "\"state\": \"$1\""; }
exported() { vudactl status --json | grep -q '"exported": true'; }
vudactl status --json >/debs/status.json
vudactl run --register game -- vuda-sim-renderer --seconds 60 >/debs/renderer.txt 2>&1 &
renderer=$!
wait_for exported
vudactl run --attach game --require -- vuda-sim-compute --seconds 60 >/debs/compute.txt 2>&1 &
compute=$!
wait_for state_is sharing
vudactl top --once
vudactl metrics | grep '^vuda_sessions_sharing 1$'
vudactl bugreport --output /debs/report.tar.gz
kill $compute
wait $compute || true
nobody_shares() { vudactl metrics | grep -q '^vuda_sessions_sharing 0$'; }
wait_for nobody_shares

echo "-- run --fit-kernels finds its library, or says that it does not"
vudactl run --attach game --fit-kernels -- grep -m 1 "$lib/libvuda_fit.so" /proc/self/maps
mv $lib/libvuda_fit.so /debs
vudactl run --attach game --fit-kernels -- true 2>/debs/said.txt
mv /debs/libvuda_fit.so $lib
grep 'libvuda_fit.so is not beside' /debs/said.txt
vudactl run --attach game --fit-kernels -- true 2>/debs/said.txt
[ ! -s /debs/said.txt ]

echo "-- a kernel that is too large: refused, and with --over-limit unshare the next run is unshared"
large() { vudactl run --attach game --over-limit $1 -- vuda-sim-compute --kernels 3 --kernel-ms 0.1 --guard --smem 65536 >/debs/large.txt 2>&1; }
if large reject; then cat /debs/large.txt; exit 1; fi
grep '"cuda_error":701' /debs/large.txt
wait_for nobody_shares
if large unshare; then cat /debs/large.txt; exit 1; fi
grep '"cuda_error":701' /debs/large.txt
large unshare
grep 'runs unshared for' /debs/large.txt
grep '"cuda_error":0' /debs/large.txt
vudactl unquarantine game
kill $renderer
wait || true

echo "-- vuda-probe and vuda-trace on the simulated GPU"
n=0
# Times are what it judges by; a machine with other things to do may not tell at once.
until vudactl run -- vuda-probe limit; do
    n=$((n + 1))
    [ $n -lt 3 ]
done
vudactl run -- vuda-trace record -o /debs/sim.vtrace -- vuda-sim-compute --kernels 3
vuda-trace show /debs/sim.vtrace | grep -c ALLOC

echo "-- vudactl doctor finds the libraries"
vudactl doctor >/debs/doctor.txt || true
grep 'libvuda_preload.so$' /debs/doctor.txt
grep 'VkLayer_vuda.json$' /debs/doctor.txt
SESSION

booted=no
if [ "$boot" = try ] && command -v systemd-nspawn >/dev/null; then
    say "booted with systemd-nspawn"
    umount "$root/proc" "$root/dev"
    rm "$root/usr/sbin/policy-rc.d"
    # The simulated GPU, as an administrator would switch it on.
    sed -i 's/^enabled = false/enabled = true/; s#^textfile = ""#textfile = "/run/vuda/metrics.prom"#' "$root/etc/vuda/vudad.toml"
    cat >"$root/debs/booted.sh" <<'BOOTED'
set -eu
say() { echo "-- $*"; }
say "all units are active"
systemctl is-active vudad.socket vudad-handles.socket vudad.service
sh /debs/session.sh
systemctl show vudad.service --property=StatusText,WatchdogUSec,NRestarts,MainPID
say "the journal has the fields"
journalctl -u vudad --no-pager VUDA_EVENT=attach -o verbose | grep VUDA_
say "the metrics are in their file"
test -s /run/vuda/metrics.prom
say "stopped, it comes back with the first connection"
systemctl stop vudad.service
vudactl status --json >/dev/null
say "hanging, it is killed by the watchdog and comes back"
pid=$(systemctl show -P MainPID vudad.service)
kill -STOP "$pid"
n=0
while [ "$(systemctl show -P MainPID vudad.service)" = "$pid" ]; do
    n=$((n + 1))
    [ $n -lt 300 ]
    sleep 0.1
done
# Its start takes RestartSec longer than vudactl waits, perhaps; the connection itself is never refused.
n=0
until vudactl status --json >/dev/null; do
    n=$((n + 1))
    [ $n -lt 10 ]
done
[ "$(systemctl show -P NRestarts vudad.service)" -ge 1 ]
say "reload and restart"
systemctl reload vudad.service
systemctl restart vudad.service
vudactl status --json >/dev/null
systemctl is-active vudad.service
say "upgrade: another daemon behind the same sockets"
pid=$(systemctl show -P MainPID vudad.service)
socket=$(systemctl show -P ActiveEnterTimestampMonotonic vudad.socket)
dpkg --force-confold -i /debs/next/*.deb >/debs/upgrade.txt 2>&1
vudactl status --json >/dev/null
[ "$(systemctl show -P MainPID vudad.service)" != "$pid" ]
[ "$(systemctl show -P ActiveEnterTimestampMonotonic vudad.socket)" = "$socket" ]
systemctl is-active vudad.socket vudad-handles.socket vudad.service
test -s /var/lib/vuda/faults
say "journal"
journalctl -u vudad --no-pager -o cat
BOOTED
    cat >"$root/etc/systemd/system/vuda-check.service" <<'UNIT'
[Unit]
After=multi-user.target
SuccessAction=poweroff
FailureAction=poweroff
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/bin/sh /debs/booted.sh >/debs/booted.log 2>&1 && touch /debs/booted.ok'
TimeoutStartSec=240
[Install]
WantedBy=default.target
UNIT
    inside systemctl enable vuda-check.service >/dev/null 2>&1
    timeout -s KILL 300 systemd-nspawn --quiet --keep-unit --register=no --boot -D "$root" </dev/null >"$work/boot.log" 2>&1 || true
    inside systemctl disable vuda-check.service >/dev/null 2>&1
    rm "$root/etc/systemd/system/vuda-check.service"
    if [ -e "$root/debs/booted.log" ]; then
        booted=yes
        cat "$root/debs/booted.log"
        [ -e "$root/debs/booted.ok" ] || {
            echo "failed in the booted Debian"
            exit 1
        }
    else
        echo "systemd-nspawn does not boot it here: $(tail -n 3 "$work/boot.log" | tr -d '\r')"
    fi
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
fi
if [ $booted = no ]; then
    say "not booted: vudad as the user vuda in a chroot. NOT tested: socket activation, watchdog, hardening in force, journal"
    inside systemd-tmpfiles --create vuda.conf
    chroot --userspec=vuda:vuda "$root" /usr/bin/env -i PATH=/usr/bin:/bin /usr/sbin/vudad --sim --config /etc/vuda/vudad.toml &
    machine=$!
    for ((n = 0; n < 300; ++n)); do
        [ ! -S "$root/run/vuda/vudad.sock" ] || break
        sleep 0.1
    done
    inside sh /debs/session.sh
    kill "$machine"
    wait "$machine"
    machine=
    [ ! -e "$root/run/vuda/vudad.sock" ]
fi
if [ $booted = no ]; then
    sed -i 's/^enabled = false/enabled = true/' "$root/etc/vuda/vudad.toml"
    inside sh -c 'dpkg --force-confold -i /debs/next/*.deb' >"$work/upgrade.log" 2>&1
fi
cat "$root/debs/renderer.txt" "$root/debs/compute.txt"
inside tar -tzf /debs/report.tar.gz

say "upgraded: the administrator's configuration and choice of units stand"
# shellcheck disable=SC2016,SC2086
[ "$(inside dpkg-query -W -f '${Version}\n' $packages | grep -c '+next$')" -eq 4 ] || fail "not upgraded"
grep '^enabled = true' "$root/etc/vuda/vudad.toml" || fail "the upgrade took the configuration"
grep '^# Of the next version' "$root/etc/vuda/vudad.toml.dpkg-dist" || fail "the new configuration is not beside the old one"
inside systemctl disable vudad.service vudad.socket vudad-handles.socket >/dev/null 2>&1
inside sh -c 'dpkg -i /debs/next/vudad_*.deb' >/dev/null 2>&1
for unit in vudad.service vudad.socket vudad-handles.socket; do
    [ "$(inside systemctl is-enabled "$unit")" = disabled ] || fail "the upgrade enabled $unit"
done

say "without vuda-probe-pair"
inside dpkg --purge vuda-probe-pair >/dev/null
status=0
said=$(inside vuda-probe limit 2>&1) || status=$?
echo "$said"
if [ $status -ne 69 ] || ! grep -q 'package vuda-probe-pair' <<<"$said"; then fail "vuda-probe limit does not say what is missing: $status"; fi

say "the Vulkan layer, where a loader looks"
manifest=/usr/share/vulkan/implicit_layer.d/VkLayer_vuda.json
layer=$(sed -n 's/.*"library_path": "\(.*\)".*/\1/p' "$root$manifest")
inside ls "$(dirname "$manifest")/$layer"
cat >"$work/layers.c" <<'LAYERS'
#include <stdio.h>
#include <stdlib.h>
#include <vulkan/vulkan.h>
int main(void) {
    uint32_t n = 0;
    if (vkEnumerateInstanceLayerProperties(&n, NULL)) return 1;
    VkLayerProperties* all = calloc(n + 1, sizeof *all);
    if (vkEnumerateInstanceLayerProperties(&n, all)) return 1;
    for (uint32_t i = 0; i < n; ++i) puts(all[i].layerName);
    return 0;
}
LAYERS
if command -v cc >/dev/null && cc -o "$root/debs/layers" "$work/layers.c" -lvulkan 2>/dev/null; then
    inside env VUDA_ENABLE_LAYER=1 /debs/layers | grep -x VK_LAYER_VUDA_sharing
else
    echo "NOT tested: no compiler or no libvulkan-dev here"
fi

say "build against libvuda-dev"
printf '#include <stdio.h>\n#include <vuda/vuda.h>\nint main(void) { puts(vuda_last_error()); return 0; }\n' >"$work/use.c"
if command -v cc >/dev/null && command -v pkg-config >/dev/null; then
    # Word-splitting is wanted.
    # shellcheck disable=SC2046
    cc -o "$root/debs/use" "$work/use.c" $(PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_LIBDIR=$(echo "$root"/usr/lib/*/pkgconfig) pkg-config --cflags --libs vuda)
    inside /debs/use >/dev/null
    echo "a program with pkg-config: runs"
    printf '#include <vuda/vuda.hpp>\nint main() { return vuda_last_error() == nullptr; }\n' >"$work/use.cc"
    # shellcheck disable=SC2046
    c++ -std=c++20 -o "$root/debs/use" "$work/use.cc" $(PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_LIBDIR=$(echo "$root"/usr/lib/*/pkgconfig) pkg-config --cflags --libs vuda)
    inside /debs/use
    echo "a C++ program: runs"
fi
if command -v cmake >/dev/null; then
    printf 'cmake_minimum_required(VERSION 3.25)\nproject(use C)\nfind_package(vuda 0.1 REQUIRED)\nadd_executable(use use.c)\ntarget_link_libraries(use PRIVATE vuda::vuda)\n' >"$work/CMakeLists.txt"
    if ! { cmake -S "$work" -B "$work/use" -DCMAKE_FIND_ROOT_PATH="$root" -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY &&
        cmake --build "$work/use"; } >"$work/cmake.log" 2>&1; then
        cat "$work/cmake.log"
        exit 1
    fi
    cp "$work/use/use" "$root/debs/use"
    inside /debs/use >/dev/null
    echo "a program with find_package: runs"
fi

say "remove"
inside dpkg --remove vudad libvuda-dev libvuda >/dev/null
[ -e "$root/etc/vuda/vudad.toml" ] || fail "remove took the configuration"
say "purge"
# shellcheck disable=SC2086
inside dpkg --purge $packages 2>&1 | grep -v '^(Reading\|^Purging\|^Removing' || true
list_files >"$work/after"
accounts >"$work/accounts-after"
# The list before was taken with policy-rc.d.
[ -e "$root/usr/sbin/policy-rc.d" ] || sed -i '\#^./usr/sbin/policy-rc.d$#d' "$work/before"
# The boot itself leaves these, with or without vudad.
left=$(diff "$work/before" "$work/after" | grep '^[<>]' | grep -v ' \./etc/\(machine-id\|\.pwd\.lock\|\.updated\|resolv\.conf\|hostname\|passwd-\|group-\|shadow-\|gshadow-\|gshadow\|subuid-\|subgid-\|subuid\|subgid\)$\| \./var/\.updated$\| \./etc/systemd/system/\(.*\.wants/\)\?\(getty\|systemd\|machines\|remote-fs\)' || true)
if [ -n "$left" ]; then
    echo "files differ from before the installation:"
    echo "$left"
    exit 1
fi
diff "$work/accounts-before" "$work/accounts-after" || {
    echo "users or groups differ"
    exit 1
}
[ ! -e "$root/run/vuda" ]
say "nothing is left; booted with systemd: $booted"
