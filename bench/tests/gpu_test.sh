#!/bin/sh
# The benchmark programs, one short co-run, and what harms nobody of integrity and containment, on a real GPU. Usage: gpu_test.sh BUILD_DIRECTORY. 77: no GPU here.
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)

skip() {
    echo "SKIP: $1"
    exit 77
}
[ -c /dev/nvidiactl ] || skip "no NVIDIA GPU: /dev/nvidiactl is not there"
ldconfig -p | grep -q 'libcuda\.so\.1' || skip "the NVIDIA driver's libcuda.so.1 is not installed"

"$build/bin/vuda-bench-compute" --json --seconds 1 --kernel-us 500
"$build/bin/vuda-bench-compute" --json --seconds 0.5 --load memory --iterations 1
"$build/bin/vuda-bench-compute" --json --seconds 0.5 --load tiny
"$build/bin/vuda-bench-compute" --json --seconds 0.2 --kernel-us 200 --smem 204800 --report-holes
"$build/bin/vuda-bench-compute" --json --cycles 3
"$build/bin/vuda-bench-render" --json --seconds 1 --target-frame-ms 5
"$build/bin/vuda-bench-render" --json --seconds 0.5 --load vertex
if "$build/bin/vuda-bench-render" --json --seconds 0.2 --corrupt-frame 40; then
    echo "a wrong frame was not found"
    exit 1
fi
"$build/bin/vuda-bench-both" --json --seconds 1
[ -x "$build/bin/vudad" ] || skip "this build has no vudad, so the co-run was left out"
# Only root may read the kernel log where kernel.dmesg_restrict is set.
xids=
dmesg >/dev/null 2>&1 || xids=--ignore-xids
"$here/../corun.py" --bin "$build" --cases two-process,one-process --runs 1 --seconds 1 $xids
"$here/../features.py" --bin "$build" --cases launch,graph,printf,cooperative --runs 1 $xids
"$here/../integrity.py" --bin "$build" --seconds 10 --no-torch $xids
"$here/../containment.py" --bin "$build" --cases unshare,cuda-killed,renderer-killed $xids
