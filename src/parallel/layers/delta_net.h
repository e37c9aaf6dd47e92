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
} tsr__delta_net;

extern const tsr__layer_type tsr__delta_net_type;

/* Returns the delta net of a layer: itself or one of its children, or NULL. */
tsr__delta_net *tsr__delta_net_of(const tsr_layer *layer);

#endif
