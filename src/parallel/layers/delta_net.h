/* Delta nets: layers with a state in place of keys and values. delta_net_create.c creates them,
 * and delta_net.c has their passes. */
#ifndef TSR_PARALLEL_LAYERS_DELTA_NET_H
#define TSR_PARALLEL_LAYERS_DELTA_NET_H

#include "parallel/internal.h"
#include "parallel/layers/layer.h"
#include "tessera/transformer.h"

/* The children. */
enum {
    TSR__DELTA_NET_INPUT, /* column-parallel: the blocks below */
    TSR__DELTA_NET_OUTPUT /* row-parallel */
};

/* The layer's own parameters. Those of the convolution are in the order of the projections. */
enum {
    TSR__DELTA_NET_CONV,
    TSR__DELTA_NET_CONV_COUNT = 3,
    TSR__DELTA_NET_A_LOG = TSR__DELTA_NET_CONV_COUNT,
    TSR__DELTA_NET_DT_BIAS,
    TSR__DELTA_NET_NORM
};

typedef struct tsr__delta_net {
    tsr_layer base;
    int64_t key_heads, heads; /* of this rank */
    int64_t key_dim, value_dim;
    int64_t taps;
    float norm_epsilon;
    bool tiled_heads;
    /* [ranks]: how the features of q and k, those of v, and the heads are divided */
    int64_t *key_sizes, *value_sizes, *head_sizes;
    const tsr__documents *documents; /* of the rows of forward passes; NULL: rows are documents */
    tsr_group *context_group;        /* NULL: rows are not divided */
    tsr__context *context;           /* of the last pass whose documents had none */
} tsr__delta_net;

/* The states before or after some tokens, or their gradients. */
typedef struct tsr__delta_states {
    tsr_tensor *conv;  /* [batch, channels, taps − 1]; NULL with one tap */
    tsr_tensor *state; /* [batch, heads, key_dim, value_dim] */
} tsr__delta_states;

/* Computes the results of the heads, [batch, tokens, heads, value_dim], from projections `rows`
 * [batch, tokens, features], both contiguous. `starts` are as in tessera/recurrent.h, or NULL.
 * `states`, those before the tokens, become those after them. */
typedef tsr_status tsr__delta_run(const tsr__delta_net *net, tsr__temps *temps,
                                  const tsr_tensor *rows, const tsr_tensor *starts,
                                  const tsr__delta_states *states, tsr_tensor *heads);
/* Adds the gradients of the layer's parameters, except the norm's, from those of the heads'
 * results. Computes those of all projections but z, `drows`. `before` are the states before the
 * tokens; `d`, the gradients of the states after the tokens, become those of the states before. */
typedef tsr_status tsr__delta_run_grad(tsr__delta_net *net, tsr__temps *temps,
                                       const tsr_tensor *rows, const tsr_tensor *starts,
                                       const tsr__delta_states *before, const tsr__delta_states *d,
                                       const tsr_tensor *dheads, tsr_tensor *drows);

/* context_delta_net.c: does that with each chunk of rows that a context group divides, [batch,
 * tokens of this rank, features]. chunk_starts are those of tsr__documents, or NULL. The states go
 * from chunk to chunk, in the order of the sequence. before[2] become the states before this rank's
 * chunks, in `temps`; NULL: they are not needed. */
tsr_status tsr__context_delta_run(const tsr__delta_net *net, const tsr__context *context,
                                  tsr__temps *temps, tsr__delta_run *run, const tsr_tensor *rows,
                                  const tsr_tensor *chunk_starts, tsr_tensor *heads,
                                  tsr_tensor *before[2]) TSR_NODISCARD;
tsr_status tsr__context_delta_run_grad(tsr__delta_net *net, const tsr__context *context,
                                       tsr__temps *temps, tsr__delta_run_grad *run,
                                       const tsr_tensor *rows, const tsr_tensor *chunk_starts,
                                       tsr_tensor *const before[2], const tsr_tensor *dheads,
                                       tsr_tensor *drows) TSR_NODISCARD;

extern const tsr__layer_type tsr__delta_net_type;

/* Returns the delta net of a layer: itself or one of its children, or NULL. */
tsr__delta_net *tsr__delta_net_of(const tsr_layer *layer);

#endif
