/* Where the weights of a model are in its files. "Ours" are the names and the arrangement of
 * parameters in this library's layers, such as "attention.q.weight".
 *
 *     parameters.c  our parameters: which a layer has, and their sizes
 *     names.c       the names of their tensors
 *     places.c      which rows and columns of which tensor they are
 *     weights.c     how the files of a model name and arrange weights; finds parameters in them
 *
 * The files of a model are found and listed by files.c, and read by source.c, reader.c and
 * elements.c. kept.c chooses the dtypes in which ranks keep weights. */
#ifndef TSR_MODEL_WEIGHTS_WEIGHTS_H
#define TSR_MODEL_WEIGHTS_WEIGHTS_H

#include "model/families/family.h"
#include "model/weights/files.h"
#include "tessera/layer.h"

/* How files arrange the matrices of experts. */
typedef enum tsr__expert_tensors {
    TSR__EXPERTS_USUAL = 0, /* as the family's names say */
    /* Folders: gate and up of all experts in one tensor, "gate_up_proj", and down in another,
     * "down_proj", instead of tensors for each expert, as Transformers 5 keeps them in memory. What
     * Mixtral's names call "block_sparse_moe" is then "mlp". */
    TSR__EXPERTS_MERGED,
    /* GGUF files of before April 2024: a tensor for each expert, such as "ffn_gate.3.weight". */
    TSR__EXPERTS_APART,
    /* GGUF files: the rows of gate and then those of up in one tensor, "ffn_gate_up_exps". */
    TSR__EXPERTS_GATE_UP
} tsr__expert_tensors;

/* The order in which a file has rows or columns: number i of ours is number
 * first + i / (run · runs) · group_step + i / run % runs · run_step + i % run of the file's. */
typedef struct tsr__order {
    int64_t run; /* those that follow each other in both; 0: the orders are the same */
    int64_t runs, run_step, group_step, first;
} tsr__order;

int64_t tsr__order_in_file(const tsr__order *order, int64_t index);

/* How a model's files name and arrange weights. */
typedef struct tsr__weights {
    const tsr__model_files *files;
    const tsr_model_config *config;
    const tsr__family *family;
    const char *prefix; /* starts names in Hugging Face files: hf_prefix or "" */
    bool transposed;    /* matrices of layers are [in, out] */
    tsr__expert_tensors experts;
    /* GGUF files of early Qwen3-Next: q, k, v and z of delta nets in one tensor, "ssm_in", with the
     * rows of each key head together. */
    bool joined_delta_nets;
    bool joint_latents; /* k_b and v_b of each head are rows of one tensor, kv_b */
} tsr__weights;

/* The place of one of our parameters: rows first_row … first_row + rows − 1 of a tensor
 * [all_rows, columns]. A tensor of one dimension counts as a matrix with one column. */
typedef struct tsr__weight {
    const tsr_shard_param *file;
    int64_t first_row, rows, all_rows, columns;
    int64_t row_step; /* the rows are first_row, first_row + row_step, … */
    /* The tensor is [matrices, all_rows, columns], and the parameter is in number `matrix` of them;
     * matrices is 0 if it has no such dimension. */
    int64_t matrices, matrix;
    bool transposed; /* the file has the tensor as [columns, all_rows] */
    /* If transposed: the file has [all_columns, all_rows], and the parameter is in its first rows.
     * 0: `columns`. */
    int64_t all_columns;
    bool flat; /* matrices follow each other as rows of one matrix, without a dimension */
    /* Rows of each head are in the order of adjacent pairs: row 2i + h of the file is row
     * h · head_dim / 2 + i of ours. 0: they are in our order. */
    int64_t interleaved_head;
    tsr__order row_order; /* of the `rows`, before row_step */
    tsr__order column_order;
    bool less_one;   /* the file has each element less 1; only for tensors of one dimension */
    bool minus_exp;  /* the file has −e^x of each element x; the same */
    bool has_middle; /* the tensor has a dimension of 1 between rows and columns */
} tsr__weight;

/* Returns how files that are written arrange the experts of a family. */
tsr__expert_tensors tsr__experts_of_family(const tsr__family *family, bool gguf);

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
 * layer −1. A parameter of experts, such as "mlp.experts.up.weight", has a matrix (or, of a bias, a
 * row) for each expert: tsr__weight_find_expert finds that of one expert, tsr__weight_find the
 * first. */
tsr_status tsr__weight_find(const tsr__weights *weights, int layer, const char *ours,
                            tsr__weight *out) TSR_NODISCARD;
tsr_status tsr__weight_find_expert(const tsr__weights *weights, int layer, const char *ours,
                                   int64_t expert, tsr__weight *out) TSR_NODISCARD;

/* The part of a parameter that a rank has: rows and columns of our matrix, which all experts have
 * alike. */
typedef struct tsr__weight_part {
    int64_t first_row, rows, first_column, columns;
    bool of_experts; /* the parameter has a matrix for each expert, of which the rank has these: */
    int64_t first_expert, experts;
} tsr__weight_part;

/* Changes the order of a weight of a delta net whose heads are in tiled order in the file, and the
 * place of a rank's part in it, to the rank's heads in tiled order: head h of a rank reads key head
 * h % n of its n. Blocks of columns can then stay as they are. Does nothing to other weights. */
void tsr__weight_keep_tiles(tsr__weight *weight, tsr__weight_part *part);

/* Returns whether a weight can be kept in this block format: with the blocks of the file, if these
 * are of the same format, or with new ones. */
bool tsr__weight_keeps_blocks(const tsr__weight *weight, tsr_dtype dtype);

/* Returns the number of matrices of a part, and of their elements. */
int64_t tsr__weight_part_matrices(const tsr__weight_part *part);
uint64_t tsr__weight_part_elements(const tsr__weight_part *part);

/* Finds one of our parameters, and the part of it that this rank has, as `parameter` says. Of
 * experts, *out is the first one's. */
tsr_status tsr__weight_of(const tsr__weights *weights, int layer, const char *ours,
                          const tsr_parameter *parameter, tsr__weight *out,
                          tsr__weight_part *part) TSR_NODISCARD;

/* Gives the name of a parameter in files that are named and arranged as `weights` says, and which
 * rows of the tensor of this name it is. Does not look for the tensor: `file` of *out is NULL. */
#define TSR__WEIGHT_NAME 192
tsr_status tsr__weight_place(const tsr__weights *weights, int layer, const char *ours,
                             int64_t expert, tsr__weight *out,
                             char name[TSR__WEIGHT_NAME]) TSR_NODISCARD;

/* Gives the shape of the tensor that a place belongs to. `ndim` is that of our parameter, as in
 * tsr__weights_ndim. Returns the number of dimensions of the tensor. */
int tsr__weight_shape(const tsr__weights *w, const tsr__weight *place, int ndim, int64_t shape[3]);

/* One of our parameters, as the configuration implies it. */
typedef struct tsr__parameter {
    const char *ours;
    int ndim; /* of one expert's matrix, if it has experts; if it is 1, `columns` is 1 */
    int64_t rows, columns;
    int64_t experts; /* the number of its matrices; 0: it is not of experts */
    bool of_heads;   /* these are of heads, not of experts */
    bool is_f32;     /* the layer needs it in f32: norms, sinks and routers */
} tsr__parameter;
/* Gives parameter `index` of a layer, or of layer −1: those outside layers. Returns false past the
 * last one. */
bool tsr__weights_parameter(const tsr_model_config *config, int layer, int index,
                            tsr__parameter *out);
/* Returns the number of dimensions of one of our parameters, of experts or heads that of one's
 * matrix. 0: there is no parameter of this name. */
int tsr__weights_ndim(int layer, const char *ours);
/* Returns one of our parameters, which there must be, and which the layer must be able to have. */
tsr__parameter tsr__weights_parameter_of(const tsr_model_config *config, int layer,
                                         const char *ours);
/* Returns whether one of our parameters consists of matrices that may be kept in any dtype. */
bool tsr__weights_is_matrix(int layer, const char *ours);

#endif
