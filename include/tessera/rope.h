/* Rotary position embedding (RoPE): rotates pairs of components of queries and keys by angles that
 * are proportional to their positions. Source: Su et al., "RoFormer" (2021).
 *
 *     tsr_rope *rope = NULL;
 *     tsr_rope_create(stream, tsr_rope_params(.rotary_dim = 64), &rope);
 *     tsr_rope_apply(stream, rope, q, q, positions);
 *
 * Threads: only one thread at a time may use a tsr_rope, as for a tensor. */
#ifndef TESSERA_ROPE_H
#define TESSERA_ROPE_H

#include "tessera/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_rope tsr_rope;

/* Which components form pair i of rotary_dim / 2. */
typedef enum tsr_rope_pairing {
    TSR_ROPE_HALVES = 0,  /* i and i + rotary_dim / 2: models in Hugging Face's format */
    TSR_ROPE_ADJACENT = 1 /* 2i and 2i + 1: the article, and Meta's Llama weights */
} tsr_rope_pairing;

/* How the frequencies f_i = theta^(−2i / rotary_dim) change for contexts longer than a model was
 * trained for. */
typedef enum tsr_rope_scaling {
    TSR_ROPE_SCALING_NONE = 0,
    TSR_ROPE_SCALING_LINEAR = 1, /* f_i / factor */
    /* Depends on the wave length w = 2π / f_i: f_i if w < original_length / high_frequency_factor,
     * f_i / factor if w > original_length / low_frequency_factor, and a weighted mean of both for w
     * between these limits. */
    TSR_ROPE_SCALING_LLAMA3 = 2,
    /* f_i for pairs that make beta_fast or more full rotations in original_length positions, f_i /
     * factor for pairs that make beta_slow or fewer, and a weighted mean of both for pairs between.
     * The rotated components are multiplied by attention_factor. Source: Peng et al., "YaRN"
     * (2023), in the form of Hugging Face Transformers. */
    TSR_ROPE_SCALING_YARN = 3,
    /* f_i / divisors[i]. The rotated components are multiplied by attention_factor. Source: Ding et
     * al., "LongRoPE" (2024). */
    TSR_ROPE_SCALING_DIVISORS = 4
} tsr_rope_scaling;

typedef struct tsr_rope_params {
    size_t struct_size;
    /* The number of components that are rotated, which are the first of a row. Even, at most
     * 65536. */
    int64_t rotary_dim;
    tsr_rope_pairing pairing;
    double theta; /* 0: 10000 */
    tsr_rope_scaling scaling;
    /* How many times longer the context becomes. Unused without scaling, and for DIVISORS. */
    double factor;
    /* LLAMA3, YARN: the context that the model was trained for, in positions; at least 1. */
    double original_length;
    double low_frequency_factor, high_frequency_factor; /* LLAMA3; 0: 1 and 4 */
    double beta_fast, beta_slow;                        /* YARN; 0: 32 and 1 */
    /* YARN; 0: 0.1 · log(factor) + 1, and 1 for factors up to 1. DIVISORS; 0: 1 */
    double attention_factor;
    const float *divisors; /* DIVISORS: [rotary_dim / 2], above 0. Read during the call */
    /* YARN: the range of pairs with a weighted mean keeps its bounds, which are otherwise rounded
     * outwards to whole pairs (truncate = false in a config.json). */
    bool exact_range;
} tsr_rope_params;
#define tsr_rope_params(...)                                                                       \
    (&(tsr_rope_params){.struct_size = sizeof(tsr_rope_params), __VA_ARGS__})

/* Computes the frequencies in double precision, and uploads them to the stream's device. Errors:
 * TSR_ERR_INVALID naming the value, and those of tsr_tensor_create and tsr_tensor_upload. */
TSR_API TSR_NODISCARD tsr_status tsr_rope_create(tsr_stream *stream, const tsr_rope_params *params,
                                                 tsr_rope **out);

/* Destroys a rope and sets *rope to NULL. NULL is allowed. Work that has been recorded with it
 * still completes. */
TSR_API void tsr_rope_destroy(tsr_rope **rope);

/* y = x, with each pair (u, w) of a row rotated by the angle a = position · f_i:
 * (u · cos a − w · sin a, u · sin a + w · cos a) · attention_factor. Components from rotary_dim on
 * are copied.
 *
 * x and y are [.., head_dim], of 2 to 8 dimensions, floats in any mixture and of any strides,
 * provided that a row spans less than 2^31 bytes; y may be the same view as x. `positions` is i32
 * and may be negative. It broadcasts to x's shape without the last dimension: for x [batch, heads,
 * q_len, head_dim] it is [q_len], or [batch, 1, q_len] if the positions differ between sequences.
 * Full rotations are removed from angles in integer arithmetic, so that large positions lose no
 * precision. Before it is rounded to y's dtype, the result differs from the exact one by at most
 * about 2e-7 · (|u| + |w|) · attention_factor.
 *
 * Errors: TSR_ERR_INVALID naming the values, and those of recording on a stream. */
TSR_API TSR_NODISCARD tsr_status tsr_rope_apply(tsr_stream *stream, const tsr_rope *rope,
                                                tsr_tensor *y, const tsr_tensor *x,
                                                const tsr_tensor *positions);

/* The gradient of tsr_rope_apply: dx = dy, rotated in the opposite direction, times
 * attention_factor. dx may be the same view as dy. With an attention_factor of 1 this is also the
 * inverse of tsr_rope_apply. Shapes, dtypes and errors are as for tsr_rope_apply. Both functions
 * record their work and do not wait for it. */
TSR_API TSR_NODISCARD tsr_status tsr_rope_grad(tsr_stream *stream, const tsr_rope *rope,
                                               tsr_tensor *dx, const tsr_tensor *dy,
                                               const tsr_tensor *positions);

#ifdef __cplusplus
}
#endif

#endif
