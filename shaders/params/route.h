/* Push constants of the kernels that choose experts: route.comp, route_grad.comp and
 * route_sort.comp. */
#ifndef TSR_PARAMS_ROUTE_H
#define TSR_PARAMS_ROUTE_H

#include "types.h"

#define TSR_ROUTE_MOST_EXPERTS 1024u
#define TSR_ROUTE_MOST_CHOSEN 32u

/* The values of tsr_gating. src/gpu/experts/route.c asserts that both lists agree. */
#define TSR_ROUTE_SOFTMAX 0u
#define TSR_ROUTE_SIGMOID 1u
#define TSR_ROUTE_CHOSEN 2u

/* One row per token. Strides count elements; the elements of a row are contiguous. An address that
 * is 0 means that the tensor is missing. If groups is 0, there are no groups. */
struct tsr_route_push {
    TSR_ADDRESS logits, ids, weights, bias;
    TSR_ADDRESS local, here; /* here[…] = local[ids[…]], with the strides of ids */
    TSR_UINT tokens, experts, chosen;
    TSR_UINT logits_stride, ids_stride, weights_stride;
    TSR_UINT groups, groups_used;
    TSR_FLOAT scale, least_sum, epsilon;
    TSR_UINT normalise;
};
TSR_PUSH_CHECK(tsr_route_push);

/* `weights` are the gradients of the weights, and `probabilities` those of the softmax
 * probabilities, which are the same for all tokens. */
struct tsr_route_grad_push {
    TSR_ADDRESS logits, ids, weights, probabilities, result;
    TSR_UINT tokens, experts, chosen;
    TSR_UINT logits_stride, ids_stride, weights_stride, result_stride;
    TSR_FLOAT scale, least_sum, epsilon;
    TSR_UINT normalise;
};
TSR_PUSH_CHECK(tsr_route_grad_push);

struct tsr_route_sort_push {
    TSR_ADDRESS ids, order, offsets;
    TSR_UINT pairs, experts, chosen;
    TSR_UINT ids_stride; /* from token to token */
};
TSR_PUSH_CHECK(tsr_route_sort_push);

#endif
