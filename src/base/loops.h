/* Include this header in files whose loops the compiler vectorises. Each such file is compiled once
 * for each instruction set, and TSR__INSTRUCTION_SET is then the name of the instruction set (see
 * the lists in src/base/meson.build). Its options forbid the compiler to fuse multiplications with
 * additions or to reorder them, so that the results have the same bits with all instruction sets.
 */
#ifndef TSR_BASE_LOOPS_H
#define TSR_BASE_LOOPS_H

#include <stdint.h>

/* Tells the compiler that no iteration of the loop that follows depends on an earlier iteration. */
#if defined(__clang__)
#define TSR__VECTORIZE _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#else
#define TSR__VECTORIZE _Pragma("GCC ivdep")
#endif

/* An attribute for element types. The elements may have any alignment, and the caller may access
 * the same memory as another type. */
#if defined(__GNUC__)
#define TSR__ANYWHERE __attribute__((aligned(1), may_alias))
#else
#error "unaligned access is spelled for gcc and clang only"
#endif
typedef float any_f32 TSR__ANYWHERE;
typedef double any_f64 TSR__ANYWHERE;
typedef uint8_t any_u8 TSR__ANYWHERE;
typedef uint16_t any_u16 TSR__ANYWHERE;
typedef uint32_t any_u32 TSR__ANYWHERE;
typedef uint64_t any_u64 TSR__ANYWHERE;
typedef int16_t any_i16 TSR__ANYWHERE;
typedef int32_t any_i32 TSR__ANYWHERE;
typedef int64_t any_i64 TSR__ANYWHERE;

#define TSR__INSTRUCTION_SET_JOIN_(prefix, name) prefix##name
#define TSR__INSTRUCTION_SET_JOIN(prefix, name) TSR__INSTRUCTION_SET_JOIN_(prefix, name)
/* Appends the name of the instruction set for which the file is being compiled:
 * TSR__INSTRUCTION_SET_NAME(tsr__kernels_) is tsr__kernels_avx2 if TSR__INSTRUCTION_SET is avx2. */
#define TSR__INSTRUCTION_SET_NAME(prefix) TSR__INSTRUCTION_SET_JOIN(prefix, TSR__INSTRUCTION_SET)

#endif
