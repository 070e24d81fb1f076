"""What the runs of a feature of CUDA say about it, and how that is told. Pure functions."""

# Each case in words. vuda-bench-features knows the cases too, and their order (--list).
WORDS = {
    "launch": "kernel launches",
    "constant-memory": "64 KiB of constant memory",
    "textures": "textures and surfaces",
    "events": "events and their times",
    "priorities": "stream priorities",
    "host-functions": "functions of the host in a stream",
    "stream-memory-operations": "streams that write and wait for values",
    "host-memory": "pinned and registered host memory",
    "memory-pool": "stream-ordered allocation (memory pools)",
    "virtual-memory": "virtual memory management",
    "ipc": "memory of another process (CUDA IPC)",
    "graph": "graphs",
    "graph-child": "graphs in graphs",
    "graph-memory": "graphs with memory nodes",
    "shared-memory": "48,128 and 49,152 bytes of shared memory a block",
    "shared-memory-blocks": "blocks with shared memory, as many as a multiprocessor holds",
    "clock": "tensor cores, and the clock while they work",
    "native-module": "large kernels of a module, with variables",
    "native-graph": "graphs with large kernels, with variables",
    "native-graph-update": "graphs that an update gives larger kernels",
    "printf": "`printf` in kernels",
    "assert": "`assert` in kernels, which holds",
    "device-malloc": "`malloc` and `free` in kernels",
    "cooperative": "cooperative launches (`grid.sync`), a block on each SM",
    "cluster": "thread block clusters",
    "dependent-launch": "programmatic dependent launches",
    "local-memory": "local memory that grows after a context was made",
    "stack-limit": "a larger stack after a context was made (`cuCtxSetLimit`)",
    "dynamic-parallelism": "kernels that launch kernels (dynamic parallelism)",
    "contexts-in-turns": "three contexts in one process, used in turns",
    "contexts-at-once": "two contexts in one process, used at once",
    "context-recreated": "`cuCtxDestroy` and another context, five times",
    "primary-reset": "`cuDevicePrimaryCtxReset`",
    "cooperative-full": "cooperative launches that fill every SM",
    "managed-prefetched": "managed memory, prefetched",
    "managed-faulting": "managed memory, fetched by page faults",
    "managed-variable": "`__managed__` variables, fetched by page faults",
    "dynamic-parallelism-large": "kernels that launch kernels too large to share",
    "pageable": "ordinary host memory (HMM, ATS), fetched by page faults",
    "assert-fails": "`assert` in kernels, which fails",
    "bad-address": "a kernel that writes to where nothing is",
    "native-fault": "a large kernel that writes to where nothing is",
    "cuda-gdb": "a program under `cuda-gdb`",
    "core-dumps": "GPU core dumps (`CUDA_ENABLE_COREDUMP_ON_EXCEPTION`)",
    "mps": "a client of MPS",
}


# What a case finds out, beside whether it works: its figures with these beginnings. They may differ between alone and shared.
_FINDINGS = {"shared-memory-blocks": ("blocks_at_most_", "shared_memory_per_sm"), "clock": ("clock_mhz_",)}


def findings(case, run):
    """{metric: value} of a run that passed."""
    wanted = _FINDINGS.get(case, ())
    return {name: float(value) for name, value in run.get("figures", {}).items() if name.startswith(wanted)}


def verdict(alone, shared):
    """(one of 'shares', 'native', 'partly', 'differs', 'fails', 'absent', 'broken', words) of a case's runs; `alone` may be empty."""

    def first(runs, condition):
        return next((run for run in runs if condition(run)), None)

    run = first(alone, lambda r: r["outcome"] == "skipped") or first(shared, lambda r: r["outcome"] == "skipped")
    if run:
        return "absent", run["error"] or "not offered here"
    run = first(alone, lambda r: r["outcome"] != "passed")
    if run:
        return "broken", f"fails alone as well: {run['error']}"
    run = first(shared, lambda r: r["outcome"] == "wrong")
    if run:
        return "differs", run["error"]
    run = first(shared, lambda r: r["outcome"] != "passed")
    if run:
        return "fails", "; ".join(filter(None, [run["error"] or run["outcome"], run.get("native_reason")]))
    sums = {r["checksum"] for r in [*alone, *shared]}
    if len(sums) > 1:
        return "differs", f"results differ: {', '.join(sorted(sums))}"
    reasons = [r["reason"] or r["said"] for r in shared if r["reason"] or r["said"]]
    if not any(r["attaches"] for r in shared):
        return "native", reasons[0] if reasons else ""
    run = first(shared, lambda r: not r["attaches"])
    if run:
        return "partly", f"shared in {sum(bool(r['attaches']) for r in shared)} of {len(shared)} runs; {reasons[0] if reasons else 'no reason given'}"
    if reasons:
        return "partly", f"shares, and then: {reasons[0]}"
    return "shares", ""


# What a verdict means to a reader of the table.
SHARED_WORDS = {
    "shares": "yes",
    "native": "no: runs as without VUDA",
    "partly": "in part",
    "differs": "**wrong results**",
    "fails": "**fails**",
    "absent": "not offered",
    "broken": "fails alone",
}


def table(rows):
    """Markdown of a result file's rows."""
    by_case = {}
    for entry in rows:
        by_case.setdefault(entry["case"], {})[entry["config"]] = entry
    lines = ["| feature | shares | why, or what it does | round alone, ms | shared, ms | frames/s beside it | test |", "| --- | --- | --- | --- | --- | --- | --- |"]

    def figure(entry, metric, digits):
        return f"{entry['metrics'][metric]['median']:.{digits}f}" if entry and metric in entry["metrics"] else "-"

    def room(entry):
        return f"{entry['metrics']['shared_memory_per_sm']['median'] / 1024:g} KiB"

    def clock(entry):
        return f"{entry['metrics']['clock_mhz_tensor']['median']:.0f} MHz with tensor cores at work, {entry['metrics']['clock_mhz_plain']['median']:.0f} without"

    def found(alone, shared):
        """What a case has found out, of those that are to find out something."""
        if "clock_mhz_tensor" in shared["metrics"]:
            return clock(shared) + (f" (alone {clock(alone)})" if alone and "clock_mhz_tensor" in alone["metrics"] else "")
        if "shared_memory_per_sm" not in shared["metrics"]:
            return ""
        text = f"{room(shared)} of shared memory for all blocks of a multiprocessor"
        return f"{text} (alone {room(alone)})" if alone and "shared_memory_per_sm" in alone["metrics"] else text

    for case, words in WORDS.items():
        configs = by_case.get(case, {})
        shared = configs.get("shared")
        if not shared:
            continue
        kind, _, why = shared["note"].partition(": ")
        split = configs.get("partitioned")
        if split:
            split_kind, _, split_why = split["note"].partition(": ")
            if (split_kind, split_why) != (kind, why):
                why = "; ".join(filter(None, [why, f"with compute kept off TPCs: {SHARED_WORDS.get(split_kind, split_kind)} {split_why}".strip()]))
        why = "; ".join(filter(None, [why, found(configs.get("alone-compute"), shared)]))
        cells = [words, SHARED_WORDS.get(kind, kind), _cell(why), figure(configs.get("alone-compute"), "round_ms", 2), figure(shared, "round_ms", 2), figure(shared, "renderer_fps", 1)]
        lines.append("| " + " | ".join([*cells, f"`features.py --cases {case}`"]) + " |")
    alone = by_case.get("renderer", {}).get("alone-renderer")
    if alone:
        lines += ["", f"Renderer with nothing beside it: {figure(alone, 'renderer_fps', 1)} frames a second."]
    return lines


def _cell(text):
    return text.replace("|", "/").replace("\n", " ")
