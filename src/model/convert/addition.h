/* Adding an adapter to the weights of a model while they are converted. */
#ifndef TSR_MODEL_CONVERT_ADDITION_H
#define TSR_MODEL_CONVERT_ADDITION_H

#include "model/lora/files.h"

typedef struct tsr__conversion tsr__conversion;

/* What is added to some rows of one of the destination's tensors, or of a matrix of an expert in
 * it: scale · B A. With magnitudes (DoRA), each row has its magnitude as its norm afterwards. */
typedef struct tsr__addition {
    struct tsr__addition *next; /* for other rows of the same tensor */
    tsr__adapter_file *adapter;
    tsr__adapter_module module;
    tsr__weight to; /* the place in the destination */
    /* The destination has a matrix [inputs, columns] of each head, with the columns of k_b; neither
     * `to` nor the lists of outputs and inputs are used. */
    bool by_heads;
    /* While the tensor is converted, with outputs and inputs in our order: A and B, and magnitudes,
     * if there are some; and which of ours the outputs and inputs of the destination are, −1: of
     * another weight, [to.all_rows] and [inputs] */
    float *a, *b, *m;
    int64_t *outputs, *inputs;
} tsr__addition;

/* Opens the adapter that the params name, and finds the tensors that it changes. */
tsr_status tsr__addition_plan(tsr__conversion *conversion) TSR_NODISCARD;
void tsr__addition_finish(tsr__conversion *conversion);

/* Reads the values for a tensor, and frees them again. */
tsr_status tsr__addition_begin(tsr__addition *addition) TSR_NODISCARD;
void tsr__addition_end(tsr__addition *addition);
/* Adds the products to rows first … first + rows − 1 of the tensor, of which `values` has `columns`
 * elements each. */
void tsr__addition_add(const tsr__addition *addition, int64_t first, int64_t rows, int64_t columns,
                       float *values);

#endif
