/* For loops that the compiler turns into vectors, in files that are compiled once for each
 * instruction set, TSR__LEVEL being its name (the lists in src/base/meson.build). No fused
 * multiply-add and no reassociation, so that all of them give the same bits. */
#ifndef TSR_BASE_LOOPS_H
#define TSR_BASE_LOOPS_H

#include <stdint.h>

/* Stands before a loop whose iterations depend on none before them, which the compiler cannot know.
 */
#if defined(__clang__)
#define TSR__VECTORIZE _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#else
#define TSR__VECTORIZE _Pragma("GCC ivdep")
#endif

/* Elements of any alignment, in memory that may hold something else for the caller. */
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

#define TSR__LEVEL_JOIN_(prefix, level) prefix##level
#define TSR__LEVEL_JOIN(prefix, level) TSR__LEVEL_JOIN_(prefix, level)
/* A name for each instruction set: TSR__LEVEL_NAME(tsr__kernels_) is tsr__kernels_avx2, … */
#define TSR__LEVEL_NAME(prefix) TSR__LEVEL_JOIN(prefix, TSR__LEVEL)

#endif
