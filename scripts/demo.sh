#!/usr/bin/env bash
# Installs what a fresh Debian 12 lacks, builds, and shows a renderer and a compute program on one GPU: each alone, in time slices
# (what the driver does by default), and through VUDA: shared, and partitioned (compute keeps off the TPCs that are left to graphics). Ends with the table.
#
#   scripts/demo.sh              on the NVIDIA GPU if there is one, else on the simulated GPU
#   scripts/demo.sh --sim        on the simulated GPU
#   scripts/demo.sh --gpu        on the NVIDIA GPU, or fail
#   scripts/demo.sh --seconds S  measure S seconds each time (default 2)
#
# Everything it starts ends with it; nothing is installed but Debian packages. A second run only takes the time of the runs.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s (%s)\n' "$*" "$(date +%H:%M:%S)"; }
usage() {
    sed -n '2,10p' "$0" >&2
    exit 64
}

where=auto
seconds=2
while [ $# -gt 0 ]; do
    case $1 in
        --sim) where=sim ;;
        --gpu) where=gpu ;;
        --seconds)
            [ $# -ge 2 ] || usage
            seconds=$2
            shift
            ;;
        *) usage ;;
    esac
    shift
done

# Says what a run on hardware lacks, or nothing.
gpu_lacks() {
    local node
    for node in /dev/nvidiactl /dev/nvidia-uvm; do
        [ -c "$node" ] || {
            echo "$node is not there"
            return
        }
    done
    # Not with a pipe: grep -q would end it early, and pipefail takes that for a failure.
    case $(/sbin/ldconfig -p) in
        *libcuda.so.1*) ;;
        *) echo "libcuda.so.1 is not installed" ;;
    esac
}

lacks=$(gpu_lacks)
if [ "$where" = gpu ] && [ -n "$lacks" ]; then
    echo "demo.sh: no NVIDIA GPU to run on: $lacks" >&2
    exit 69
fi
if [ "$where" = auto ]; then
    if [ -z "$lacks" ]; then
        where=gpu
    else
        where=sim
        echo "no NVIDIA GPU to run on ($lacks): using the simulated GPU"
    fi
fi

scripts/test.sh packages

say "build"
cmake --preset release >/dev/null
cmake --build --preset release -j "$(nproc)" --target vuda-demo

options=(--bin build/release --cases two-process --runs 1 --seconds "$seconds")
if [ "$where" = sim ]; then
    say "run, on the simulated GPU"
    options+=(--sim)
else
    say "run, on the NVIDIA GPU"
    # Only root may read the kernel log where kernel.dmesg_restrict is set.
    dmesg >/dev/null 2>&1 || options+=(--ignore-xids)
fi
# exec: a signal to this script reaches the program that cleans up.
exec bench/corun.py "${options[@]}"
