// Named places in the code at which a test, or an engineer, can stop a process.
//
// VUDA_FAULT_POINT(name) is 16 bytes of nop and an entry in a note section that is never loaded: a USDT probe, provider
// "vuda". Nothing in the program reads the entry, no environment variable, file or message changes what the nops do,
// and whoever can write over them could kill the process anyway. So the points stay in what is shipped, and the
// binaries that are killed at each point in tests/faults are the ones that users get. They serve in the field too:
// `bpftrace -l 'usdt:/usr/sbin/vudad:*'`, `perf probe sdt_vuda:*`, `info probes` in gdb.
//
// A point belongs between two steps that others can tell apart: stored and answered, bound and listening. Every name is
// in the matrix of tests/faults, which fails for a name that is not. Never on a path that work takes to the GPU.
//
// Source of the note's form: https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation
#pragma once

#if defined(__x86_64__) && defined(__ELF__) && !defined(VUDA_NO_FAULT_POINTS)

// Room for the longest thing that tests put there (kill(getpid(), SIGKILL), 16 bytes). What they put there may use rax,
// rcx and r11, as a system call does.
#define VUDA_FAULT_POINT(name)                                                  \
    __asm__ __volatile__(                                                       \
        "990: .skip 16, 0x90\n"                                                 \
        ".pushsection .note.stapsdt,\"?\",\"note\"\n"                           \
        ".balign 4\n"                                                           \
        ".4byte 992f-991f, 994f-993f, 3\n"                                      \
        "991: .asciz \"stapsdt\"\n"                                             \
        "992: .balign 4\n"                                                      \
        "993: .8byte 990b, _.stapsdt.base, 0\n"                                 \
        ".asciz \"vuda\"\n"                                                     \
        ".asciz \"" #name                                                       \
        "\"\n"                                                                  \
        ".asciz \"\"\n"                                                         \
        "994: .balign 4\n"                                                      \
        ".popsection\n"                                                         \
        ".ifndef _.stapsdt.base\n"                                              \
        ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
        ".weak _.stapsdt.base\n"                                                \
        ".hidden _.stapsdt.base\n"                                              \
        "_.stapsdt.base: .space 1\n"                                            \
        ".size _.stapsdt.base, 1\n"                                             \
        ".popsection\n"                                                         \
        ".endif\n" ::                                                           \
            : "rax", "rcx", "r11", "memory", "cc")

#else
#define VUDA_FAULT_POINT(name) static_cast<void>(0)
#endif
