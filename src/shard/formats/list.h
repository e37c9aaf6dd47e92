/* Readers of parameter lists, one for each format. */
#ifndef TSR_SHARD_FORMATS_LIST_H
#define TSR_SHARD_FORMATS_LIST_H

#include "shard/formats/file.h"
#include "shard/params/params.h"
#include "json/json.h"

struct tsr_shard_list {
    tsr_shard_format format;
    tsr__params params;
};

/* Each appends what the file lists; what it appended before an error stays there. `what` of the
 * file is set by them. */
tsr_status tsr__read_safetensors(tsr__file *file, tsr__params *params) TSR_NODISCARD;
tsr_status tsr__read_gguf(tsr__file *file, tsr__params *params) TSR_NODISCARD;

/* A list of parameters as JSON, or an index; *is_index says which, and for an index nothing is
 * appended. */
tsr_status tsr__read_json(tsr__file *file, tsr__params *params, bool *is_index) TSR_NODISCARD;

/* The files of an index, which are in its folder. */
tsr_status tsr__read_index(const char *path, tsr__file *file, tsr__params *params) TSR_NODISCARD;

/* A parameter as JSON: one entry of a list, or of a plan, which may have `shards` too: where they
 * are is then written there; NULL for a list. Strings go into `text`. It becomes the errors'
 * subject, by `number` until its name has been read, and stays that. */
typedef struct tsr__param_text {
    char key[TSR__JSON_TEXT];
    char name[TSR__JSON_TEXT];
    char layer[TSR__JSON_TEXT];
    char dtype[32];
} tsr__param_text;
tsr_status tsr__json_param(tsr__json *json, tsr__param_text *text, uint64_t number,
                           tsr_shard_param *param, size_t *shards) TSR_NODISCARD;
/* An array of sizes into shape and ndim. */
tsr_status tsr__json_shape(tsr__json *json, tsr_shard_param *param) TSR_NODISCARD;

/* Where the weights of parameters lie, and where their headers say so. */
typedef struct tsr__span {
    uint64_t start, end; /* from the start of the weights */
    uint64_t header_at;
    uint64_t param;
} tsr__span;
typedef struct tsr__spans {
    tsr__span *items;
    size_t count, capacity;
} tsr__spans;

/* The span of the parameter that was appended last. */
tsr_status tsr__spans_add(tsr__spans *spans, const tsr__params *params, uint64_t start,
                          uint64_t end, uint64_t header_at) TSR_NODISCARD;
/* That no two overlap, and, where `gapless`, that they fill 0 … size. Sorts them. */
tsr_status tsr__spans_check(const tsr__file *file, const tsr__params *params, tsr__spans *spans,
                            bool gapless, uint64_t size) TSR_NODISCARD;

/* That no two parameters have one name. The spans are in the parameters' order. */
tsr_status tsr__check_names(const char *what, const tsr__params *params,
                            const tsr__spans *spans) TSR_NODISCARD;

#endif
