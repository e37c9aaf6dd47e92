/* The files of a model: where its configuration and its weights are, and the list of its tensors.
 */
#ifndef TSR_MODEL_WEIGHTS_FILES_H
#define TSR_MODEL_WEIGHTS_FILES_H

#include "shard/formats/readers.h"
#include "tessera/shard.h"

struct tsr__random_weights; /* random.h */

/* The tensors that together are a matrix in MXFP4 (mxfp4.h): indices in the list. */
typedef struct tsr__joined {
    size_t blocks, scales;
} tsr__joined;

typedef struct tsr__model_files {
    bool gguf;
    bool config_is_read; /* the configuration is that of these files */
    /* The folder of all files, with a slash at the end; "" for the working directory. */
    char *folder;
    char *config;  /* path of config.json; NULL if `gguf` */
    char *weights; /* path of the GGUF file, safetensors file or index */
    tsr_shard_list *list;
    tsr__param_name *names;             /* the names of the list's tensors, sorted */
    struct tsr__random_weights *random; /* not NULL: a random model without files */
    /* Tensors first_joined … of the list are not in the files; each consists of two others. */
    tsr__joined *joined;
    size_t first_joined, joined_count, joined_capacity;
} tsr__model_files;

/* Finds the files and reads the list of tensors. Call tsr__model_files_finish afterwards, also
 * after an error. Errors: TSR_ERR_NOT_FOUND, and those of tsr_shard_list_open. */
tsr_status tsr__model_files_open(const char *path, tsr__model_files *out) TSR_NODISCARD;
/* The same for files of weights without a configuration. */
tsr_status tsr__model_files_open_weights(const char *path, tsr__model_files *out) TSR_NODISCARD;
void tsr__model_files_finish(tsr__model_files *files);

/* Returns the tensor with this name, or NULL. */
const tsr_shard_param *tsr__model_files_find(const tsr__model_files *files, const char *name);

/* Returns the path of the file that holds a tensor. The caller must free it. NULL: no memory. */
char *tsr__model_files_path(const tsr__model_files *files, const tsr_shard_param *param);

/* Joins two parts of a path; the caller must free the result. NULL: no memory. */
char *tsr__path_join(const char *folder, const char *name);

#endif
