#!/usr/bin/env bash
# Are the units right, and is the service closed enough? check_units.sh FOLDER-WITH-UNITS VUDAD
# Exit status 77: cannot be checked here.
set -euo pipefail
folder=$1 vudad=$2

if ! command -v systemd-analyze >/dev/null; then
    echo "skipped: systemd-analyze is not installed (Debian: systemd)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$folder"/vudad.service "$folder"/*.socket "$work"
# The program is not installed where it will be.
sed -i "s#^ExecStart=[^ ]*#ExecStart=$vudad#" "$work/vudad.service"

# What it says of other units of this machine is not ours to judge.
said=$(SYSTEMD_UNIT_PATH="$work:" systemd-analyze verify --man=no "$work"/vudad.service "$work"/*.socket 2>&1) || failed=$?
printf '%s\n' "$said"
if [ -n "${failed:-}" ] || grep -q "$work\|vudad" <<<"$said"; then
    echo "systemd-analyze verify finds faults"
    exit 1
fi

if ! systemd-analyze security --help | grep -q -- --offline; then
    echo "skipped: this systemd-analyze cannot judge a unit file (--offline, systemd 250)"
    exit 77
fi
# In tenths: 1.0 of 10. What is left, and why, is at the end of the unit.
systemd-analyze security --offline=true --threshold=10 --no-pager "$work/vudad.service" >"$work/report" 2>&1 || {
    grep -v '^✓' "$work/report"
    exit 1
}
tail -n 1 "$work/report"
