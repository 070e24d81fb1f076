#!/usr/bin/env bash
# Builds the Debian packages vudad, libvuda, libvuda-dev and vuda-probe-pair.
#
#   scripts/package.sh [FOLDER]    leaves them in FOLDER (default build/package/deb)
#
# VUDA_PACKAGE_BUILD names another build tree, VUDA_JOBS the number of jobs. The dates in the packages are the commit's.
set -euo pipefail
cd "$(dirname "$0")/.."

tree=$(realpath -m "${VUDA_PACKAGE_BUILD:-build/package}")
out=$(realpath -m "${1:-$tree/deb}")

for tool in dpkg-deb dpkg-shlibdeps file pandoc gzip; do
    command -v "$tool" >/dev/null || {
        echo "package.sh: $tool is missing (apt-get install dpkg-dev file pandoc)" >&2
        exit 69
    }
done
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
    export SOURCE_DATE_EPOCH
fi
umask 022

cmake -S . -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_UNITY_BUILD=ON -DCMAKE_INSTALL_PREFIX=/usr \
    -DVUDA_BUILD_TESTS=OFF -DVUDA_BUILD_BENCH=OFF -DVUDA_BUILD_PROBE_PAIR=ON >/dev/null
cmake --build "$tree" -j "${VUDA_JOBS:-$(nproc)}"
mkdir -p "$out"
rm -f "$out"/*.deb
# dpkg-shlibdeps is quiet about what it finds; of libraries that are not there it must not be.
log=$tree/cpack.log
if ! (cd "$tree" && cpack -G DEB -B "$out") >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
rm -rf "$out/_CPack_Packages"
ls -l "$out"/*.deb
