/* Forward passes of self-attention, delta nets and transformer blocks in double precision. Their
 * gradients are central differences. */
#ifndef TESTS_PARALLEL_HOST_TRANSFORMER_H
#define TESTS_PARALLEL_HOST_TRANSFORMER_H

#include "parallel/reference.h"

#define HOST_MOST_PARAMETERS 24

typedef struct host_model {
    /* Exactly one of the five is not NULL. Its kv_heads, head_dim and taps must not be 0. */
    const tsr_self_attention_params *attention;
    const tsr_delta_net_params *delta_net;
    const tsr_latent_attention_params *latent;
    const tsr_short_conv_params *short_conv;
    const tsr_block_params *block;
    int64_t batch, tokens, size;
    /* The full parameters. Functions find them by the ends of their names, such as "q.weight". */
    int count;
    const char *name[HOST_MOST_PARAMETERS];
    double *parameter[HOST_MOST_PARAMETERS];
    int64_t elements[HOST_MOST_PARAMETERS];
    double *x; /* [batch,tokens,size] */
    /* [batch,tokens]: only for delta nets and short convolutions; NULL: each row is one document */
    const int32_t *starts;
    /* Only for blocks: the dropout factors of the two branches; NULL: 1. */
    const double *mask[2];
} host_model;

/* Gathers the full parameters of a layer. All ranks must call it. */
void host_model_load(host_model *model, const tsr_layer *layer);
void host_model_free(host_model *model);

/* Returns y [batch,tokens,size]; free() it. */
double *host_model_forward(const host_model *model);

/* Return the gradient of Σ dy · y with respect to x, or to parameter `index`; free() it. */
double *host_model_dx(host_model *model, const double *dy);
double *host_model_gradient(host_model *model, int index, const double *dy);

#endif
