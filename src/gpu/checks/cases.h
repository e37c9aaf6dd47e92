/* The cases of the self-test: one operation each, on small tensors of odd sizes. */
#ifndef TSR_GPU_CHECKS_CASES_H
#define TSR_GPU_CHECKS_CASES_H

#include "gpu/checks/case.h"

/* row_cases.c: operations on rows */
tsr__case_fn tsr__case_softmax, tsr__case_softmax_grad, tsr__case_norm, tsr__case_norm_grad;
tsr__case_fn tsr__case_cross_entropy, tsr__case_argmax, tsr__case_topk, tsr__case_choose;
tsr__case_fn tsr__case_softmax_divided, tsr__case_softmax_grad_divided, tsr__case_norm_divided;
tsr__case_fn tsr__case_norm_grad_divided, tsr__case_cross_entropy_divided;
tsr__case_fn tsr__case_sum_rows, tsr__case_sum_short_rows, tsr__case_sum_columns;
tsr__case_fn tsr__case_sum_squares;
tsr__case_fn tsr__case_norm_with_stats, tsr__case_norm_grad_added;

/* element_cases.c: operations on elements */
tsr__case_fn tsr__case_multiply, tsr__case_where, tsr__case_silu, tsr__case_silu_mul,
    tsr__case_silu_grad;
tsr__case_fn tsr__case_copy, tsr__case_transpose, tsr__case_fill, tsr__case_rope;
tsr__case_fn tsr__case_index_select, tsr__case_index_add, tsr__case_adamw, tsr__case_sgd;
tsr__case_fn tsr__case_clip_scale;
tsr__case_fn tsr__case_kv_append, tsr__case_rope_append, tsr__case_rope_append_apart;

/* vocabulary_cases.c */
tsr__case_fn tsr__case_embedding, tsr__case_embedding_grad, tsr__case_cross_entropy_shard;
tsr__case_fn tsr__case_entropy_shard_divided;

/* random_cases.c */
tsr__case_fn tsr__case_random, tsr__case_dropout;

/* attention_cases.c. For cases with keys and values in blocks, `dtype` is their format. */
tsr__case_fn tsr__case_attention, tsr__case_attention_few, tsr__case_attention_lanes,
    tsr__case_attention_grad, tsr__case_attention_delta;
tsr__case_fn tsr__case_attention_joined, tsr__case_attention_append;
tsr__case_fn tsr__case_attention_coopmat, tsr__case_attention_coopmat_grad,
    tsr__case_attention_coopmat2_grad, tsr__case_attention_sinks;
tsr__case_fn tsr__case_attention_blocks, tsr__case_attention_blocks_coopmat;
tsr__case_fn tsr__case_kv_append_blocks, tsr__case_attention_append_blocks;

/* product_cases.c: packing, and weights in blocks. For cases with weights in blocks, `dtype` is
 * either a block format (the other tensors are then f32) or a float dtype, that of the other
 * tensors (the weights are then q8_0). */
tsr__case_fn tsr__case_quant_product, tsr__case_long_quant_product, tsr__case_int8_product,
    tsr__case_dequantize, tsr__case_pack, tsr__case_narrow_blocks;
tsr__case_fn tsr__case_narrow_norm, tsr__case_narrow_gate;
tsr__case_fn tsr__case_grouped_blocks, tsr__case_grouped_few_blocks,
    tsr__case_grouped_coopmat_blocks;

/* recurrent_cases.c: layers with a state */
tsr__case_fn tsr__case_causal_conv, tsr__case_causal_conv_grad;
tsr__case_fn tsr__case_delta_step, tsr__case_delta_chunks, tsr__case_delta_matrices,
    tsr__case_delta_grad;

/* expert_cases.c: mixtures of experts with weights that are floats */
tsr__case_fn tsr__case_route, tsr__case_route_grad, tsr__case_route_sort;
tsr__case_fn tsr__case_pair_sum, tsr__case_pair_activate, tsr__case_pair_activate_grad;
tsr__case_fn tsr__case_grouped, tsr__case_grouped_few, tsr__case_grouped_grad,
    tsr__case_grouped_coopmat;

#endif
