/* SPDX-License-Identifier: MIT */
/*
 * Features of this CPU: on x86-64 from cpuid, and from xgetbv the registers that the system saves;
 * on AArch64 from the bits that Linux passes to every process.
 */
#include "engine/kernels/levels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned long long xcr0(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (unsigned long long)hi << 32 | lo;
}

static bool has(unsigned reg, unsigned bits)
{
    return (reg & bits) == bits;
}

/*
 * The system keeps tile registers from processes that have not asked for them, once for all their
 * threads; it may refuse (seccomp, gVisor, Linux before 5.16).
 */
static bool may_use_tiles(unsigned long long saved)
{
    enum { ASK_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM */
    const unsigned long long tiles = 3ull << 17;
#if defined(__linux__)
    return (saved & tiles) == tiles && syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

static unsigned read_flags(void)
{
    const unsigned amx = 1u << 22 | 1u << 24 | 1u << 25; /* BF16, TILE, INT8 */
    const unsigned fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, fma | osxsave | avx | f16c)) return 0;
    unsigned long long saved = xcr0();
    if ((saved & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, 1u << 5)) return 0;
    bool zmm = (saved & 0xe0) == 0xe0 && has(b, avx512), zmm_vnni = has(c, 1u << 11);
    bool tiles = has(d, amx);
    bool more = __get_cpuid_count(7, 1, &a, &b, &c, &d);
    unsigned flags = KERN_CPU_AVX2;
    if (more && has(a, 1u << 4)) flags |= KERN_CPU_AVX_VNNI;
    if (!zmm) return flags;
    flags |= KERN_CPU_AVX512;
    if (zmm_vnni) flags |= KERN_CPU_AVX512_VNNI;
    if (more && has(a, 1u << 5)) flags |= KERN_CPU_AVX512_BF16;
    if (tiles) flags |= KERN_CPU_AMX; /* if the system allows it */
    return flags;
}

unsigned kern_cpu_flags(void)
{
    static atomic_uint known; /* CPUID is slow in a virtual machine: it is asked once */
    unsigned flags = atomic_load(&known);
    if (!flags) atomic_store(&known, flags = read_flags());
    if (flags & KERN_CPU_AMX && !may_use_tiles(xcr0())) flags &= ~(unsigned)KERN_CPU_AMX;
    return flags;
}

#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#endif

unsigned kern_cpu_flags(void)
{
    unsigned flags = KERN_CPU_NEON; /* part of the base architecture */
#if defined(__linux__)
    /* HWCAP_ASIMDDP and HWCAP2_BF16, which headers of older systems do not name */
    if (getauxval(AT_HWCAP) & 1ul << 20) flags |= KERN_CPU_NEON_DOT;
    if (getauxval(AT_HWCAP2) & 1ul << 14) flags |= KERN_CPU_NEON_BF16;
#endif
    return flags;
}

#else

unsigned kern_cpu_flags(void)
{
    return 0;
}

#endif
