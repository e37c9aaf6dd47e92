/* Type names that mean the same in C and in GLSL, so that one struct declares a shader's push
 * constants for both. A params struct lists 64-bit addresses first and has only members of 4 and 8
 * bytes, so that std430 and C give it the same layout. After each struct, TSR_PUSH_CHECK asserts in
 * C that its size is at most TSR_PUSH_MAX. */
#ifndef TSR_PARAMS_TYPES_H
#define TSR_PARAMS_TYPES_H

#define TSR_PUSH_MAX 128

#ifdef __STDC_VERSION__
#include <stdint.h>
#define TSR_ADDRESS uint64_t
#define TSR_UINT uint32_t
#define TSR_INT int32_t
#define TSR_FLOAT float
#define TSR_PUSH_CHECK(type) _Static_assert(sizeof(struct type) <= TSR_PUSH_MAX, #type)
/* The identity tables of kernels for Mesa's CPU driver; see shaders/cpu_drivers/lavapipe.glsl. */
#define TSR_IDENTITY_8 0, 1, 2, 3, 4, 5, 6, 7
#define TSR_IDENTITY_16 TSR_IDENTITY_8, 8, 9, 10, 11, 12, 13, 14, 15
#else
#define TSR_ADDRESS uvec2
#define TSR_UINT uint
#define TSR_INT int
#define TSR_FLOAT float
#define TSR_PUSH_CHECK(type) precision highp float /* GLSL does not allow a lone semicolon */
#endif

/* The values of tsr_dtype, for shaders. src/gpu/memory/tensor.c asserts that both lists agree. */
#define TSR_DT_F32 1u
#define TSR_DT_F16 2u
#define TSR_DT_BF16 3u
#define TSR_DT_I32 4u
#define TSR_DT_U32 5u
#define TSR_DT_I64 6u
#define TSR_DT_U8 7u
#define TSR_DT_Q4_0 16u
#define TSR_DT_Q8_0 20u

#endif
