/* Readers of parameter lists: a function for each format. read_parameters.c chooses one. */
#ifndef TSR_SHARD_FORMATS_READERS_H
#define TSR_SHARD_FORMATS_READERS_H

#include "shard/formats/gguf_metadata.h"
#include "shard/formats/header_file.h"
#include "shard/params/params.h"
#include "json/json.h"

struct tsr_shard_list {
    tsr_shard_format format;
    tsr__params params;
    tsr__gguf_keys keys; /* of a GGUF file; of the first one of a model in several */
};

/* Each of these functions appends the parameters of a file and sets file->what. If it fails, some
 * parameters may have been appended. */
tsr_status tsr__read_safetensors(tsr__file *file, tsr__params *params) TSR_NODISCARD;
/* This one also appends the keys of the metadata to `keys`. */
tsr_status tsr__read_gguf(tsr__file *file, tsr__params *params, tsr__gguf_keys *keys) TSR_NODISCARD;

/* Finds the weights of a model's folder: model.safetensors or model.safetensors.index.json. The
 * caller must free *out. Errors: TSR_ERR_NOT_FOUND if there is neither; its text begins with
 * `module`. */
tsr_status tsr__find_weights(const char *module, const char *folder, char **out) TSR_NODISCARD;

/* Reads a GGUF file and, if it is the first file part of a model, the other file parts beside it.
 * `keys` are those of the file; both `params` and `keys` must be empty. */
tsr_status tsr__read_gguf_files(const char *path, tsr__file *file, tsr__params *params,
                                tsr__gguf_keys *keys) TSR_NODISCARD;

/* Reads a list of parameters in JSON. If the file is an index instead, sets *is_index and appends
 * nothing. */
tsr_status tsr__read_json(tsr__file *file, tsr__params *params, bool *is_index) TSR_NODISCARD;

/* Reads all files that an index names. They must be in the folder of the index. */
tsr_status tsr__read_index(const char *path, tsr__file *file, tsr__params *params) TSR_NODISCARD;

/* Reads a parameter from JSON. In a plan, the parameter may have a member "shards", and *shards is
 * set to the offset of its value. In a list, it has no such member, and `shards` is NULL. The
 * strings of `param` point into `text`. The call sets the subject of error texts: the parameter's
 * number until its name has been read, then its name; this remains the subject after the call. */
typedef struct tsr__param_text {
    char key[TSR__JSON_TEXT];
    char name[TSR__JSON_TEXT];
    char layer[TSR__JSON_TEXT];
    char dtype[32];
} tsr__param_text;
tsr_status tsr__json_param(tsr__json *json, tsr__param_text *text, uint64_t number,
                           tsr_shard_param *param, size_t *shards) TSR_NODISCARD;
/* Reads an array of sizes into the shape and ndim of `param`. */
tsr_status tsr__json_shape(tsr__json *json, tsr_shard_param *param) TSR_NODISCARD;

/* Where a parameter's weights are in a file, and where the header describes it. */
typedef struct tsr__span {
    uint64_t start, end; /* offsets from the start of the weights */
    uint64_t header_at;
    uint64_t param;
} tsr__span;
typedef struct tsr__spans {
    tsr__span *items;
    size_t count, capacity;
} tsr__spans;

/* Adds the span of the parameter that was appended last. */
tsr_status tsr__spans_add(tsr__spans *spans, const tsr__params *params, uint64_t start,
                          uint64_t end, uint64_t header_at) TSR_NODISCARD;
/* Sorts the spans and checks that no two of them overlap. If `gapless` is true, also checks that
 * they cover 0 … size without gaps. */
tsr_status tsr__spans_check(const tsr__file *file, const tsr__params *params, tsr__spans *spans,
                            bool gapless, uint64_t size) TSR_NODISCARD;

/* Checks that no two parameters have the same name. The spans must be in the order of the
 * parameters. */
tsr_status tsr__check_names(const char *what, const tsr__params *params,
                            const tsr__spans *spans) TSR_NODISCARD;

/* Reads the list of parameters of a file that is in memory. `data` is the first size_bytes of a
 * file of file_bytes, and must contain its header. An index cannot be read in this way, and of a
 * model in several GGUF files only the parameters of this one. Errors: as tsr_shard_list_open. */
TSR_NODISCARD tsr_status tsr__list_parse(tsr_shard_format format, const void *data,
                                         size_t size_bytes, uint64_t file_bytes,
                                         tsr_shard_list **out);

#endif
