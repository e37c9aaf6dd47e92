/* The cases of the self-test: one operation each, on small tensors of odd sizes. */
#ifndef TSR_GPU_CHECKS_CASES_H
#define TSR_GPU_CHECKS_CASES_H

#include "gpu/checks/case.h"

/* rows.c: operations on rows */
tsr__case_fn tsr__case_softmax, tsr__case_softmax_grad, tsr__case_norm, tsr__case_norm_grad;
tsr__case_fn tsr__case_cross_entropy, tsr__case_argmax;
tsr__case_fn tsr__case_sum_rows, tsr__case_sum_short_rows, tsr__case_sum_columns;

/* elements.c: operations on elements */
tsr__case_fn tsr__case_multiply, tsr__case_silu, tsr__case_transpose, tsr__case_rope;
tsr__case_fn tsr__case_index_select, tsr__case_index_add, tsr__case_adamw;

/* products.c: attention, and products with weights in q8_0 */
tsr__case_fn tsr__case_attention, tsr__case_attention_few;
tsr__case_fn tsr__case_quant_few, tsr__case_quant_many;

#endif
