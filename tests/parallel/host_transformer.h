/* Self-attention and transformer blocks in double precision, forward; their gradients are central
 * differences. */
#ifndef TESTS_PARALLEL_HOST_TRANSFORMER_H
#define TESTS_PARALLEL_HOST_TRANSFORMER_H

#include "parallel/reference.h"

#define HOST_MOST_PARAMETERS 24

typedef struct host_model {
    /* One of both; their sizes are complete: kv_heads and head_dim are not 0. */
    const tsr_self_attention_params *attention;
    const tsr_block_params *block;
    int64_t batch, tokens, size;
    /* By the ends of their names: "q.weight". */
    int count;
    const char *name[HOST_MOST_PARAMETERS];
    double *parameter[HOST_MOST_PARAMETERS];
    int64_t elements[HOST_MOST_PARAMETERS];
    double *x; /* [batch,tokens,size] */
    /* Of a block: what the two branches are multiplied by; NULL: 1. */
    const double *mask[2];
} host_model;

/* The complete parameters of a layer. All ranks call it. */
void host_model_load(host_model *model, const tsr_layer *layer);
void host_model_free(host_model *model);

/* y [batch,tokens,size]; free() it. */
double *host_model_forward(const host_model *model);

/* Σ dy · y's gradient by x, or by parameter `index`; free() it. */
double *host_model_dx(host_model *model, const double *dy);
double *host_model_gradient(host_model *model, int index, const double *dy);

#endif
