/* A conversion of a model, while it is going on. */
#ifndef TSR_MODEL_CONVERT_CONVERSION_H
#define TSR_MODEL_CONVERT_CONVERSION_H

#include <stdarg.h>

#include "model/convert/tensor.h"
#include "model/file.h"
#include "tessera/convert.h"
#include "tessera/tokenizer.h"

typedef struct tsr__mixture tsr__mixture; /* mixture.h */

typedef struct tsr__conversion {
    const tsr_convert_params *params;
    const tsr__mixture *mixture; /* NULL: none */
    bool gguf;                   /* the destination is a GGUF file */
    const tsr_model_file *file;
    const tsr__model_files *files;  /* of `file` */
    const tsr_model_config *config; /* of `file` */
    const tsr__weights *source;     /* of `file` */
    tsr__model_files target_files;
    tsr__weights target;        /* the target serves only to compute names and places of weights */
    tsr_tokenizer *tokenizer;   /* NULL: none */
    bool copies_tokenizer;      /* both are folders: the tokenizer's files stay as they are */
    tsr__adapter_file *adapter; /* NULL: none */
    tsr__converted *tensors;
    size_t count, capacity;
    tsr__output output;
    tsr_convert_stats stats;
} tsr__conversion;

/* Write everything except the weights into the output, and decide where each tensor starts. */
tsr_status tsr__conversion_begin_gguf(tsr__conversion *conversion) TSR_NODISCARD;
tsr_status tsr__conversion_begin_folder(tsr__conversion *conversion) TSR_NODISCARD;

/* Returns the description of a tensor of the destination, which borrows the tensor's name. */
tsr_shard_param tsr__conversion_param(const tsr__converted *tensor);
/* Passes a sentence to the caller's `note`. */
void tsr__conversion_note(const tsr__conversion *conversion, const char *format, ...)
    TSR__PRINTF(2, 3);

#endif
