#!/bin/sh
# Compares the kernel interface of driver releases: measure_abi.sh CLONE VERSION...
# CLONE is a clone of https://github.com/NVIDIA/open-gpu-kernel-modules; each VERSION is one of its tags. Prints a number for each
# release (equal numbers: equal layouts) and what changes from one number to the next. Exit status 1 when a release cannot be compiled.
set -eu

if [ $# -lt 2 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 64
fi
clone=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
previous=
layout=0
for version in "$@"; do
    tree=$work/tree
    rm -rf "$tree"
    mkdir "$tree"
    git -C "$clone" archive "$version" src/common/sdk/nvidia/inc src/nvidia/arch/nvalloc/unix/include kernel-open/nvidia-uvm \
        kernel-open/common/inc | tar x -C "$tree"
    if ! ${CC:-cc} -w -I"$tree/src/common/sdk/nvidia/inc" -I"$tree/src/nvidia/arch/nvalloc/unix/include" \
        -I"$tree/kernel-open/nvidia-uvm" -I"$tree/kernel-open/common/inc" "$here/abi_probe.c" -o "$work/probe"; then
        echo "$version: does not compile" >&2
        status=1
        continue
    fi
    "$work/probe" >"$work/now"
    if [ -z "$previous" ] || ! cmp -s "$work/now" "$work/before"; then
        layout=$((layout + 1))
        if [ -n "$previous" ]; then
            echo "--- $previous -> $version"
            diff "$work/before" "$work/now" | grep '^[<>]' || true
        fi
    fi
    echo "$version layout $layout"
    mv "$work/now" "$work/before"
    previous=$version
done
exit $status
