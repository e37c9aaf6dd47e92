/* Push constants of the kernels of the gated delta rule.
 *
 * In chunks, the numbers of tokens of a row are divided into chunks of TSR_DELTA_CHUNK. All scratch
 * arrays are f32 in one buffer, `work`; a place among them counts TSR_DELTA_UNIT bytes. Their rows
 * are those of [batch, chunks, heads (or key heads), TSR_DELTA_CHUNK]. */
#ifndef TSR_PARAMS_DELTA_H
#define TSR_PARAMS_DELTA_H

#include "types.h"

#define TSR_DELTA_CHUNK 64u
#define TSR_DELTA_UNIT 256u
#define TSR_DELTA_DECAY_FLOATS 8u /* of a row of `decay`: see delta.glsl */
#define TSR_DELTA_LANES 4u        /* invocations that share a column of the state */

/* A row of a tensor [batch, tokens, …] begins at (b · tokens + t) · stride. An address that is 0
 * means that the tensor is missing. */

/* delta_step.comp: the recurrence, token by token. There is room for one address of starts and
 * read_slots, which exclude each other. */
struct tsr_delta_step_push {
    TSR_ADDRESS q, k, v, beta, g, y;
    TSR_ADDRESS state, new_state;
    TSR_ADDRESS lengths, starts_or_read_slots, write_slots;
    TSR_UINT batch, tokens, slots;
    TSR_UINT q_stride, k_stride, v_stride, beta_stride, g_stride, y_stride;
    TSR_FLOAT scale;
};
TSR_PUSH_CHECK(tsr_delta_step_push);

/* delta_decay.comp: the numbers of each token that all other kernels need. */
struct tsr_delta_decay_push {
    TSR_ADDRESS beta, g, lengths, starts, work;
    TSR_UINT batch, tokens, chunks;
    TSR_UINT beta_stride, g_stride;
    TSR_UINT decay;
};
TSR_PUSH_CHECK(tsr_delta_decay_push);

/* delta_rows.comp: rows of q and k, normalised and multiplied by `factor`, or of v, multiplied by
 * beta. `inverse` gets 1 / √(Σ x² + epsilon) of each row. */
struct tsr_delta_rows_push {
    TSR_ADDRESS x, lengths, work;
    TSR_UINT batch, tokens, chunks, stride;
    TSR_UINT rows, inverse, decay;
    TSR_FLOAT factor, epsilon;
};
TSR_PUSH_CHECK(tsr_delta_rows_push);

/* delta_triangle.comp: from the products of keys with keys and queries, the inverse of the
 * triangle, the same times beta · carry, and the weights of y. */
struct tsr_delta_triangle_push {
    TSR_ADDRESS work;
    TSR_UINT count; /* of chunks in all rows */
    TSR_UINT decay, key_key, query_key;
    TSR_UINT inverse, carried, weights;
};
TSR_PUSH_CHECK(tsr_delta_triangle_push);

/* delta_scan.comp: the state from chunk to chunk, for chunks first_chunk … end_chunk − 1. `states`
 * and `deltas` are kept for the backward pass; 2^32 − 1: not. */
#define TSR_DELTA_NOT_KEPT 0xffffffffu
struct tsr_delta_scan_push {
    TSR_ADDRESS work, y, state, new_state, read_slots, write_slots;
    TSR_UINT batch, tokens, chunks, first_chunk, end_chunk, slots, y_stride;
    TSR_UINT decay, queries, keys, weights, u, w;
    TSR_UINT states, deltas;
};
TSR_PUSH_CHECK(tsr_delta_scan_push);

/* delta_scan_coopmat.comp: the same for the forward pass. queries, keys, weights and w are narrowed
 * lines (TSR_MM_TERM_UNIT in matmul.h), the others places in `work`. */
struct tsr_delta_scan_matrices_push {
    TSR_ADDRESS work, y, state, new_state, read_slots, write_slots;
    TSR_ADDRESS queries, keys, weights, w;
    TSR_UINT batch, tokens, chunks, first_chunk, end_chunk, slots, y_stride;
    TSR_UINT decay, u;
};
TSR_PUSH_CHECK(tsr_delta_scan_matrices_push);

/* delta_scan_grad.comp: the gradient of the state from chunk to chunk, backwards, for chunks
 * first_chunk … end_chunk − 1. */
struct tsr_delta_scan_grad_push {
    TSR_ADDRESS work, dy, dnew_state, dstate, lengths;
    TSR_UINT batch, tokens, chunks, first_chunk, end_chunk, dy_stride;
    TSR_UINT decay, queries, keys, weights, w, states;
    TSR_UINT dstates, ddeltas, dy_rows, dots; /* dots: [chunks, heads, blocks of columns] */
};
TSR_PUSH_CHECK(tsr_delta_scan_grad_push);

/* delta_mask_grad.comp: dweights and dtriangle become gradients of query_key and key_key. */
struct tsr_delta_mask_grad_push {
    TSR_ADDRESS work;
    TSR_UINT count;
    TSR_UINT decay, key_key, query_key;
    TSR_UINT dweights, dtriangle;  /* read */
    TSR_UINT dquery_key, dkey_key; /* written */
    TSR_UINT parts;                /* [chunks, heads, chunk, 2]: parts of dg and dbeta */
};
TSR_PUSH_CHECK(tsr_delta_mask_grad_push);

/* delta_token_grad.comp: dv, dbeta and dg. */
struct tsr_delta_token_grad_push {
    TSR_ADDRESS work, v, dv, dbeta, dg;
    TSR_UINT batch, tokens, chunks;
    TSR_UINT v_stride, dv_stride, dbeta_stride, dg_stride;
    TSR_UINT decay, queries, keys, x, z, m, dr, parts, dots;
};
TSR_PUSH_CHECK(tsr_delta_token_grad_push);

/* delta_row_grad.comp: dq or dk of a key head, summed over its value heads. */
struct tsr_delta_row_grad_push {
    TSR_ADDRESS work, dx;
    TSR_UINT batch, tokens, chunks, dx_stride;
    TSR_UINT decay, rows, inverse;
    TSR_UINT products, x, z, m; /* dq: x; dk: z and m */
    TSR_UINT is_key;
    TSR_FLOAT factor;
};
TSR_PUSH_CHECK(tsr_delta_row_grad_push);

#endif
