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
    tsr_group *context_group;        /* NULL: rows are not divided */
    tsr__context *context;           /* of the last pass whose documents had none */
} tsr__short_conv;

/* context_short_conv.c: the convolution of this rank's tokens of rows that a context group divides.
 * The tensors of tokens are [batch, tokens of this rank, channels]. */
typedef struct tsr__context_conv {
    const tsr__short_conv *conv;
    const tsr__context *context;
    tsr__temps *temps;
    const tsr_tensor *inputs, *weight;
    const tsr_tensor *chunk_starts; /* as in tsr__documents; or NULL */
} tsr__context_conv;
/* before[2] become the states before this rank's chunks, in `temps`; NULL: they are not needed. */
tsr_status tsr__context_convolve(const tsr__context_conv *call, tsr_tensor *convolved,
                                 tsr_tensor *before[2]) TSR_NODISCARD;
/* `dweight`, that of this rank's tokens, may be NULL. */
tsr_status tsr__context_convolve_grad(const tsr__context_conv *call, tsr_tensor *const before[2],
                                      const tsr_tensor *dconvolved, const tsr_tensor *dinputs,
                                      tsr_tensor *dweight) TSR_NODISCARD;

extern const tsr__layer_type tsr__short_conv_type;

/* Returns the short convolution of a layer: itself or one of its children, or NULL. */
tsr__short_conv *tsr__short_conv_of(const tsr_layer *layer);

#endif
