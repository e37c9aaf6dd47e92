/* The files of a low-rank adapter (lora.h): what they say, and the weights that they change. Needs
 * no device. */
#ifndef TSR_MODEL_LORA_FILES_H
#define TSR_MODEL_LORA_FILES_H

#include "model/lora/lora.h"
#include "model/weights/source.h"
#include "model/weights/weights.h"

typedef struct tsr__adapter_file {
    tsr__model_files files;
    tsr__lora_config config;
    char architecture[TSR_SHARD_MAX_NAME +
                      1]; /* general.architecture of a GGUF file; "": not known */
    bool *is_used;        /* [tensors of the file] */
    tsr__weight_source source;
} tsr__adapter_file;

/* Opens a PEFT folder or a GGUF adapter of llama.cpp, and reads what it is. Call
 * tsr__adapter_file_finish afterwards, also after an error. Errors: TSR_ERR_NOT_FOUND, TSR_ERR_IO;
 * TSR_ERR_INVALID for files that are no adapter; TSR_ERR_UNSUPPORTED for other kinds of adapters,
 * naming them. */
tsr_status tsr__adapter_file_open(const char *path, tsr__adapter_file *out) TSR_NODISCARD;
void tsr__adapter_file_finish(tsr__adapter_file *adapter);

/* A and B of one matrix: W + scale · B A. B may be some rows of its tensor. */
typedef struct tsr__adapter_module {
    const tsr_shard_param *a, *b; /* a is NULL: the adapter leaves the weight as it is */
    const tsr_shard_param *m;     /* the magnitudes of rows (DoRA), as B's rows; NULL: none */
    int64_t rank, inputs, outputs;
    int64_t first_row, all_rows, interleaved_head; /* of B in its tensor, as in tsr__weight */
    tsr__order row_order;                          /* of B, as in tsr__weight */
    tsr__order column_order;                       /* of A */
    int64_t matrices, matrix; /* the tensors have this many matrices (0: no such dimension) */
    double alpha, scale;
} tsr__adapter_module;

/* Finds A and B of one of our parameters, of experts that of one expert. Errors: TSR_ERR_NOT_FOUND
 * if one of them is missing, TSR_ERR_INVALID for other shapes than the weight needs, naming the
 * tensor. */
tsr_status tsr__adapter_file_find(tsr__adapter_file *adapter, const tsr_model_config *config,
                                  int layer, const tsr__parameter *parameter, int64_t expert,
                                  tsr__adapter_module *out) TSR_NODISCARD;
/* Checks that a GGUF adapter is for models of the family. */
tsr_status tsr__adapter_file_check_family(const tsr__adapter_file *adapter,
                                          const tsr__family *family) TSR_NODISCARD;
/* Checks that all tensors of the adapter have been found. */
tsr_status tsr__adapter_file_check_used(const tsr__adapter_file *adapter,
                                        const tsr_model_config *config) TSR_NODISCARD;

/* Reads A [rank, inputs] and B [outputs, rank], with inputs and outputs in our order. The caller
 * must free both. tsr__adapter_file_read_magnitudes: reads the magnitudes [outputs]. */
tsr_status tsr__adapter_file_read_magnitudes(tsr__adapter_file *adapter,
                                             const tsr__adapter_module *module,
                                             float **out) TSR_NODISCARD;
tsr_status tsr__adapter_file_read(tsr__adapter_file *adapter, const tsr__adapter_module *module,
                                  float **a, float **b) TSR_NODISCARD;

#endif
