/* Short convolutions: layers that mix a few neighbouring tokens, with gates that depend on the
 * token. short_conv_create.c creates them, and short_conv.c has their passes. */
#ifndef TSR_PARALLEL_LAYERS_SHORT_CONV_H
#define TSR_PARALLEL_LAYERS_SHORT_CONV_H

#include "parallel/internal.h"
#include "parallel/layers/layer.h"
#include "tessera/transformer.h"

/* The children. */
enum {
    TSR__SHORT_CONV_INPUT, /* column-parallel: b, c and x */
    TSR__SHORT_CONV_OUTPUT /* row-parallel */
};

/* The layer's own parameter. */
enum { TSR__SHORT_CONV_WEIGHT };

typedef struct tsr__short_conv {
    tsr_layer base;
    int64_t channels; /* of this rank */
    int64_t taps;
    tsr__division division;          /* of the channels */
    const tsr__documents *documents; /* of the rows of forward passes; NULL: rows are documents */
} tsr__short_conv;

extern const tsr__layer_type tsr__short_conv_type;

/* Returns the short convolution of a layer: itself or one of its children, or NULL. */
tsr__short_conv *tsr__short_conv_of(const tsr_layer *layer);

#endif
