/* The parameters of a model, and where files with Hugging Face's names have
 * them. Needs no device. */
#ifndef GPT_NAMES_H
#define GPT_NAMES_H

#include "config.h"

#define GPT_NAME_MAX 128 /* bytes of a name in a file */

/* A parameter: its name in our model, and its complete shape. */
typedef struct gpt_parameter {
    char name[GPT_NAME_MAX / 2];
    int ndim;
    int64_t rows, columns; /* columns: 1 if ndim is 1 */
} gpt_parameter;

/* Where a file has a parameter: rows first_row, first_row + 1, … of one of its tensors. */
typedef struct gpt_place {
    char name[GPT_NAME_MAX];
    int64_t first_row; /* in the tensor as [out, in] */
    int64_t rows;      /* rows of the complete tensor */
    bool is_matrix;    /* a matrix in a block of GPT-2, which Hugging Face stores transposed */
} gpt_place;

int names_count(const gpt_config *config);
void names_at(const gpt_config *config, int index, gpt_parameter *out);
/* Returns the number of the block that a parameter belongs to; -1: none. */
int names_block(const gpt_parameter *parameter);
/* Returns the number of elements of all parameters together. */
int64_t names_elements(const gpt_config *config);
void names_find(const gpt_config *config, const gpt_parameter *parameter, gpt_place *out);

/* Finds the tensor of a place in a file's list, and whether it is transposed. Returns NULL, with a
 * sentence in `error`, if there is none or if its shape or dtype is not usable. */
const tsr_shard_param *names_in_file(const char *path, const tsr_shard_list *list,
                                     const gpt_config *config, const gpt_parameter *parameter,
                                     const gpt_place *place, bool *transposed, char *error,
                                     size_t error_size);

/* Checks in the header of a file that it has all parameters of a model. On failure returns false
 * with a sentence in `error`. */
bool names_check_file(const char *path, const gpt_config *config, char *error, size_t error_size);

#endif
