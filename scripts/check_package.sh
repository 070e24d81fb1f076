#!/usr/bin/env bash
# Installs the Debian packages into a fresh Debian, starts vudad there, lets two simulated programs share, removes everything, and looks what
# is left.
#
#   scripts/check_package.sh [FOLDER-WITH-DEBS]    default build/package/deb, built by scripts/package.sh when it is not there
#
# As root, with debootstrap and access to Debian's mirror. With systemd-nspawn that works, the fresh Debian is booted and systemd runs the
# daemon; otherwise, or with --chroot, vudad is started as the user vuda in a chroot, and the units are only verified. --keep leaves
# the folder. VUDA_ROOT_CACHE names a folder in which the empty Debian is kept for the next time. lintian's opinion is shown if it is installed.
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
command -v debootstrap >/dev/null || {
    echo "check_package.sh: debootstrap is missing (apt-get install debootstrap)" >&2
    exit 69
}
if [ -z "$debs" ]; then
    debs=build/package/deb
    ls "$debs"/*.deb >/dev/null 2>&1 || scripts/package.sh "$debs"
fi
debs=$(realpath "$debs")

say() { printf '\n== %s (%s)\n' "$*" "$(date +%H:%M:%S)"; }
work=$(mktemp -d)
root=$work/root
machine=
cleanup() {
    [ -z "$machine" ] || kill "$machine" 2>/dev/null || true
    for mounted in proc dev/pts dev; do umount "$root/$mounted" 2>/dev/null || true; done
    if [ "$keep" = yes ]; then echo "kept: $work"; else rm -rf --one-file-system "$work"; fi
}
trap cleanup EXIT
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }

if command -v lintian >/dev/null; then
    say "lintian"
    lintian --allow-root --fail-on error --tag-display-limit 0 "$debs"/*.deb
fi

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
mkdir "$root/debs"
cp "$debs"/*.deb "$root/debs"

say "install, with what the packages depend on"
inside apt-get update -q >"$work/apt.log" 2>&1
# What they depend on first, so that the list of files before has it.
depends=$(for deb in "$debs"/*.deb; do dpkg-deb -f "$deb" Depends; done | tr ',' '\n' | sed 's/([^)]*)//g; s/|.*//; s/ //g' | grep -v '^libvuda' | sort -u)
# Word-splitting is wanted.
# shellcheck disable=SC2086
inside apt-get install -q -y --no-install-recommends $depends >>"$work/apt.log" 2>&1 || {
    tail -n 20 "$work/apt.log"
    exit 1
}
list_files() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./sys -o -path ./tmp -o -path ./debs -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/systemd -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./run \) -prune -o -print | sort); }
accounts() { cat "$root/etc/passwd" "$root/etc/group" | sort; }
list_files >"$work/before"
accounts >"$work/accounts-before"
inside sh -c 'dpkg -i /debs/*.deb' 2>&1 | grep -v '^(Reading\|^Selecting\|^Preparing\|^Unpacking\|^Setting up\|^Processing' || true
for package in vudad libvuda libvuda-dev; do
    # dpkg-query's own variables.
    # shellcheck disable=SC2016
    inside dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' "$package" | tee -a "$work/installed"
done
[ "$(grep -c ' installed$' "$work/installed")" -eq 3 ]
inside dpkg --verify vudad libvuda libvuda-dev
# shellcheck disable=SC2016
inside dpkg-query -W -f '${Conffiles}\n' vudad | grep -q /etc/vuda/vudad.toml
inside id vuda
inside getent group vuda-admin
inside ldconfig -p | grep 'libvuda\.so\.0'
inside vudad --check-config --config /etc/vuda/vudad.toml
inside systemd-analyze verify --man=no /lib/systemd/system/vudad.service /lib/systemd/system/vudad.socket /lib/systemd/system/vudad-handles.socket
for unit in vudad.service vudad.socket vudad-handles.socket; do
    [ "$(inside systemctl is-enabled "$unit")" = enabled ]
done

# What is done inside, by systemd or in the chroot. Exit status 0: all was as it should be.
cat >"$root/debs/session.sh" <<'SESSION'
set -eu
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
kill $compute $renderer
wait || true
SESSION

booted=no
if [ "$boot" = try ] && command -v systemd-nspawn >/dev/null; then
    say "booted with systemd-nspawn"
    umount "$root/proc" "$root/dev"
    rm "$root/usr/sbin/policy-rc.d"
    # The simulated GPU, as an administrator would switch it on. Undone below: a changed conffile is the administrator's.
    cp -p "$root/etc/vuda/vudad.toml" "$work/vudad.toml"
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
    cp -p "$work/vudad.toml" "$root/etc/vuda/vudad.toml"
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
cat "$root/debs/renderer.txt" "$root/debs/compute.txt"
inside tar -tzf /debs/report.tar.gz

say "build against libvuda-dev"
printf '#include <stdio.h>\n#include <vuda/vuda.h>\nint main(void) { puts(vuda_last_error()); return 0; }\n' >"$work/use.c"
if command -v cc >/dev/null && command -v pkg-config >/dev/null; then
    # Word-splitting is wanted.
    # shellcheck disable=SC2046
    cc -o "$root/debs/use" "$work/use.c" $(PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_LIBDIR=$(echo "$root"/usr/lib/*/pkgconfig) pkg-config --cflags --libs vuda)
    inside /debs/use >/dev/null
    echo "a program with pkg-config: runs"
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
[ -e "$root/etc/vuda/vudad.toml" ] || {
    echo "remove took the configuration"
    exit 1
}
say "purge"
inside dpkg --purge vudad libvuda libvuda-dev 2>&1 | grep -v '^(Reading\|^Purging\|^Removing' || true
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
