/* Where the weights of a model are in its files. "Ours" are the names and the arrangement of
 * parameters in this library's layers, such as "attention.q.weight". */
#ifndef TSR_MODEL_WEIGHTS_WEIGHTS_H
#define TSR_MODEL_WEIGHTS_WEIGHTS_H

#include "model/families/family.h"
#include "model/weights/files.h"
#include "tessera/layer.h"

/* How a model's files name and arrange weights. */
typedef struct tsr__weights {
    const tsr__model_files *files;
    const tsr_model_config *config;
    const tsr__family *family;
    const char *prefix; /* starts names in Hugging Face files: hf_prefix or "" */
    bool transposed;    /* matrices of layers are [in, out] */
} tsr__weights;

/* The place of one of our parameters: rows first_row … first_row + rows − 1 of a tensor
 * [all_rows, columns]. A tensor of one dimension counts as a matrix with one column. */
typedef struct tsr__weight {
    const tsr_shard_param *file;
    int64_t first_row, rows, all_rows, columns;
    bool transposed; /* the file has the tensor as [columns, all_rows] */
    /* Rows of each head are in the order of adjacent pairs: row 2i + h of the file is row
     * h · head_dim / 2 + i of ours. 0: they are in our order. */
    int64_t interleaved_head;
    bool less_one; /* the file has each element less 1; only for tensors of one dimension */
} tsr__weight;

/* Determines how the files name and arrange weights, and checks that every weight is there with the
 * shape that the configuration implies, in a dtype that can be read. Errors: TSR_ERR_NOT_FOUND,
 * TSR_ERR_INVALID, TSR_ERR_UNSUPPORTED, naming the tensor. */
tsr_status tsr__weights_init(const tsr__model_files *files, const tsr_model_config *config,
                             tsr__weights *out) TSR_NODISCARD;

/* Calls `add` for each tensor that such files have for a model with this configuration. `shape` has
 * `ndim` sizes. Stops after an error. */
tsr_status tsr__weights_expected(const tsr__model_files *files, const tsr_model_config *config,
                                 tsr_status (*add)(void *user, const char *name, int ndim,
                                                   const int64_t *shape),
                                 void *user) TSR_NODISCARD;

/* Finds one of our parameters, such as "attention.q.weight" of layer 3, or "embedding.weight" of
 * layer −1. */
tsr_status tsr__weight_find(const tsr__weights *weights, int layer, const char *ours,
                            tsr__weight *out) TSR_NODISCARD;

/* The part of a parameter that a rank has: rows and columns of our matrix. */
typedef struct tsr__weight_part {
    int64_t first_row, rows, first_column, columns;
} tsr__weight_part;

/* Finds one of our parameters, and the part of it that this rank has, as `parameter` says. */
tsr_status tsr__weight_of(const tsr__weights *weights, int layer, const char *ours,
                          const tsr_parameter *parameter, tsr__weight *out,
                          tsr__weight_part *part) TSR_NODISCARD;

/* Gives the name of a parameter in files that are named and arranged as `weights` says, and which
 * rows of the tensor of this name it is. Does not look for the tensor: `file` of *out is NULL. */
#define TSR__WEIGHT_NAME 192
tsr_status tsr__weight_place(const tsr__weights *weights, int layer, const char *ours,
                             tsr__weight *out, char name[TSR__WEIGHT_NAME]) TSR_NODISCARD;

/* One of our parameters, as the configuration implies it. */
typedef struct tsr__parameter {
    const char *ours;
    int ndim; /* if there is one dimension, `columns` is 1 */
    int64_t rows, columns;
} tsr__parameter;
/* Gives parameter `index` of a layer, or of layer −1: those outside layers. Returns false past the
 * last one. */
bool tsr__weights_parameter(const tsr_model_config *config, int layer, int index,
                            tsr__parameter *out);

#endif
