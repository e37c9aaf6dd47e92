/* The file or folder that a conversion writes: under a temporary name, until it is complete. */
#ifndef TSR_MODEL_CONVERT_OUTPUT_H
#define TSR_MODEL_CONVERT_OUTPUT_H

#include <stdbool.h>

#include "base/error.h"

typedef struct tsr__output {
    char *destination, *partial; /* the two paths, without a slash at the end */
    bool is_folder, exists;
    int descriptor; /* the open file with the weights; -1: none */
    uint64_t written_bytes;
} tsr__output;

/* Checks the destination, and creates a temporary file or folder beside it. Call tsr__output_finish
 * afterwards, also after an error. Errors: TSR_ERR_INVALID if the destination exists and must not
 * be replaced, or is not a file (or a folder) as expected; TSR_ERR_IO. */
tsr_status tsr__output_begin(const char *destination, bool is_folder, bool replace,
                             tsr__output *out) TSR_NODISCARD;
/* Removes what has not been committed. */
void tsr__output_finish(tsr__output *output);

/* Writes a complete file of the folder. */
tsr_status tsr__output_file(tsr__output *output, const char *name, const void *data,
                            size_t size) TSR_NODISCARD;

/* Opens the file with the weights, which in a folder has this name, and sets its size. */
tsr_status tsr__output_weights(tsr__output *output, const char *name, uint64_t size) TSR_NODISCARD;
/* Writes bytes of the file with the weights. */
tsr_status tsr__output_write(tsr__output *output, const void *data, uint64_t size,
                             uint64_t at) TSR_NODISCARD;

/* Renames the file or folder from its temporary name to its final one. In a folder that exists, the
 * files that a conversion can write are replaced, or removed if they have not been written. */
tsr_status tsr__output_commit(tsr__output *output) TSR_NODISCARD;

#endif
