#!/usr/bin/env bash
# Installs what a fresh Debian 12 lacks, builds, and runs the tests that need no GPU.
#
#   scripts/test.sh            release build, all tests without a GPU                  (the everyday check)
#   scripts/test.sh --ci       also formatting, ASan and UBSan, clang-tidy, fuzzing, TSan     (what CI runs)
#   scripts/test.sh --all      also every source alone, and the static analyzer               (before a release)
#   scripts/test.sh STEP...    only these: packages checkers format release asan lint fuzz tsan alone analyze
#
# Build trees are kept in build/PRESET and objects in ccache, so a second run is short. VUDA_FUZZ_SECONDS: how long each fuzzer runs (60).
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=$(nproc)
fuzz_seconds=${VUDA_FUZZ_SECONDS:-60}
# Another clone, in another folder, finds the same objects.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

say() { printf '\n== %s (%s)\n' "$*" "$(date +%H:%M:%S)"; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

install_missing() {
    local missing
    # dpkg-query fails when it has never heard of one of them.
    missing=$({ dpkg-query -W -f='${Package} ${Status}\n' "$@" 2>/dev/null || true; } |
        awk '/ok installed$/ { have[$1] = 1 } END { for (p in have) print p }' |
        sort | comm -13 - <(printf '%s\n' "$@" | sort -u))
    if [ -n "$missing" ]; then
        as_root apt-get update -q
        # shellcheck disable=SC2086
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
    fi
}

step_packages() {
    # shellcheck disable=SC2046
    install_missing $(cat scripts/packages.txt)
}

# What judges units, manual pages, metrics and memory. Tests that lack one of these say so and are skipped.
step_checkers() {
    local packages=(heaptrack man-db mandoc systemd)
    # For promtool. Where a service manager runs, installing it would start a server.
    [ -d /run/systemd/system ] || packages+=(prometheus)
    install_missing "${packages[@]}"
}

files() { git ls-files --cached --others --exclude-standard "$@" | sort -u | while read -r f; do [ ! -f "$f" ] || echo "$f"; done; }

step_format() {
    files '*.cc' '*.h' '*.hpp' '*.c' | { grep -v '^bench/kernels/' || true; } | xargs clang-format-14 --dry-run -Werror
    files '*.sh' .ci/run | xargs shellcheck
    python3 scripts/check_results.py docs/results
}

build() {
    cmake --preset "$1" >/dev/null
    cmake --build --preset "$1" -j "$jobs"
}

run_tests() {
    # Most of a test's time it waits for programs that keep to the clock.
    ctest --preset "$1" -j "$((jobs * 2))"
}

# g++, optimised: what is installed. Its preset has line numbers in place of full debug information, which a compiler needs a third of its time for.
step_release() {
    build release
    run_tests release
}

# clang: everything compiles with it too; lint and fuzz go on with this tree.
step_asan() {
    build asan
    run_tests asan
}

step_tsan() {
    build tsan
    run_tests tsan
}

step_lint() {
    # Generated code and headers come from the build.
    build asan
    python3 scripts/lint.py build/asan --jobs "$jobs"
}

step_alone() {
    build asan
    python3 scripts/lint.py build/asan --alone --jobs "$jobs"
}

step_analyze() {
    build asan
    python3 scripts/lint.py build/asan --deep --jobs "$jobs"
}

step_fuzz() {
    build asan
    # Twice as many as there are processors: each gets its time by the clock, and those of sockets wait much of it.
    # New inputs stay in the build tree; a crash or a worthwhile one is added to the checked-in corpus by hand.
    # shellcheck disable=SC2016
    xargs -P $((2 * jobs)) -L 1 bash -c '
        set -euo pipefail
        mkdir -p "build/asan/corpus/$0"
        log="build/asan/corpus/$0.log"
        if ! "build/asan/bin/$0" -max_total_time="$2" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
            -artifact_prefix="build/asan/corpus/" "build/asan/corpus/$0" "$1" >"$log" 2>&1; then
            tail -n 60 "$log"; echo "fuzz: $0 failed"; exit 255
        fi
        printf "fuzz: %-28s %s inputs\n" "$0" "$(awk "/number_of_executed_units/ { print \$2 }" "$log")"
    ' < <(awk -v s="$fuzz_seconds" '{ print $1, $2, s }' build/asan/fuzzers.txt)
}

# Sets $cpu to the seconds of processor time, all processors together, that this shell's finished children have used. Not in a subshell:
# that has no children yet.
read_cpu() {
    times >"$scratch/times"
    cpu=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] } printf "%d", sum }' "$scratch/times")
}

summary=""
finish() {
    local status=$?
    [ -z "$summary" ] || printf '\n%-10s %8s %8s\n%s' step seconds cpu "$summary"
    [ "$status" -eq 0 ] || [ -z "${current:-}" ] || echo "FAILED in $current"
    rm -rf "$scratch"
}

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(packages release)
[ "${steps[0]}" != --ci ] || steps=(packages checkers format release asan lint fuzz tsan)
[ "${steps[0]}" != --all ] || steps=(packages checkers format release asan lint fuzz tsan alone analyze)
for step in "${steps[@]}"; do
    declare -F "step_$step" >/dev/null || { echo "unknown step '$step'" >&2; sed -n '2,9p' "$0" >&2; exit 64; }
done
scratch=$(mktemp -d)
trap finish EXIT
for current in "${steps[@]}"; do
    say "$current"
    read_cpu
    from=$SECONDS cpu_from=$cpu
    "step_$current"
    read_cpu
    summary+=$(printf '%-10s %8d %8d' "$current" $((SECONDS - from)) $((cpu - cpu_from)))$'\n'
done
current=""
summary+=$(printf '%-10s %8d %8d' all "$SECONDS" "$cpu")$'\n'
echo "all good: ${steps[*]}"
