/* Sharding: which rank keeps which shard of a model's parameters. This header has partitions, which
 * divide a length into a range for each rank; strategies, which decide how each parameter of a list
 * is divided; plans, which are the results of strategies; and the lists of parameters in model
 * files, whose weights are not read. All this is only arithmetic: it needs no device and no
 * network.
 *
 *     tsr_shard_list *list = NULL;
 *     tsr_shard_strategy *strategy = NULL;
 *     tsr_shard_plan *plan = NULL;
 *     tsr_shard_list_open("model.safetensors", &list);
 *     tsr_shard_strategy_create(tsr_shard_strategy_params(.kind = TSR_SHARD_FULL), &strategy);
 *     tsr_shard_plan_create(strategy, tsr_shard_list_param_count(list),
 *                           tsr_shard_list_param(list, 0), tsr_shard_plan_params(.ranks = 8),
 *                           &plan);
 *     tsr_shard_plan_range(plan, 17, 3, &range);       // what rank 3 keeps of parameter 17
 *
 * Plans are computed with integers, so all ranks that compute a plan from the same input get the
 * same plan. Positions and counts are in elements, unless their name says bytes.
 *
 * Threads: lists and plans do not change after their creation, and any number of threads may read
 * them. Functions without a list or plan are thread-safe. */
#ifndef TESSERA_SHARD_H
#define TESSERA_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_SHARD_MAX_DIMS 8
#define TSR_SHARD_MAX_RANKS 65536
#define TSR_SHARD_MAX_PARAMS 1048576
#define TSR_SHARD_MAX_RANGES 67108864 /* ranges of one plan: parameters × ranks */
#define TSR_SHARD_MAX_NAME 4096       /* bytes */

/* Partitions ----------------------------------------------------------------------------------- */

/* Elements start … start + count − 1. */
typedef struct tsr_shard_range {
    uint64_t start;
    uint64_t count;
} tsr_shard_range;

typedef enum tsr_partition_kind {
    /* Each rank gets ⌈n / ranks⌉ elements, and the last ranks get what is left: 5 elements on 4
     * ranks are divided into 2, 2, 1 and 0. */
    TSR_PARTITION_EVEN = 0,
    /* Each rank gets n / ranks elements; an error if that is not an integer. */
    TSR_PARTITION_STRICT = 1,
    /* The ranks' sizes differ by at most one: 5 elements on 4 ranks are
     * divided into 2, 1, 1 and 1. */
    TSR_PARTITION_UNEVEN = 2,
    /* The ranks' sizes are in proportion to `rates`: 5 elements on ranks with the rates 3 and 1 are
     * divided into 4 and 1. Each rank's exact size is rounded down. The remaining elements go to
     * the ranks with the largest remainders; if remainders are equal, to the lower rank (Hamilton's
     * method). */
    TSR_PARTITION_WEIGHTED = 3
} tsr_partition_kind;

typedef struct tsr_partition_params {
    size_t struct_size;
    tsr_partition_kind kind;
    /* WEIGHTED: the speed of each rank, in any unit; a rank of rate 0 gets nothing. Rates are
     * rounded to multiples of the largest / 2^32, but not to 0. NULL: all the same. */
    const double *rates;
    /* The largest size for each rank; NULL: no limit. With UNEVEN and WEIGHTED, elements that
     * exceed a rank's limit are divided over the other ranks in the same proportions. With EVEN and
     * STRICT they are an error. */
    const uint64_t *limits;
    /* Every range starts at a multiple of this number of elements. The partition then divides units
     * of that many elements, of which the last may be shorter. 0: 1. */
    uint64_t align;
} tsr_partition_params;
#define tsr_partition_params(...)                                                                  \
    (&(tsr_partition_params){.struct_size = sizeof(tsr_partition_params), __VA_ARGS__})

/* Divides `length` elements into consecutive ranges, one for each rank, and writes them to the
 * caller's ranges[ranks]. A rank that gets nothing has count 0, and starts where its neighbours
 * meet. `params` may be NULL. Errors: TSR_ERR_INVALID for ranks outside 1 … TSR_SHARD_MAX_RANKS, a
 * length of 2^63 or more, rates that are negative, not finite or all 0, rates for another kind than
 * WEIGHTED, a length that STRICT cannot divide, or one that the limits cannot hold;
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_partition(uint64_t length, int ranks,
                                               const tsr_partition_params *params,
                                               tsr_shard_range *ranges);

/* Parameters ----------------------------------------------------------------------------------- */

/* A parameter of a model. As an argument, only the first group of fields must be set; the library
 * sets all fields of the structs that it returns. Strings in arguments belong to the caller and are
 * copied; strings in returned structs belong to the list or plan. */
typedef struct tsr_shard_param {
    size_t struct_size;
    const char *name; /* UTF-8, 1 … TSR_SHARD_MAX_NAME bytes; unique in a list */
    int ndim;         /* 0: one element */
    int64_t shape[TSR_SHARD_MAX_DIMS];
    /* In upper or lower case: f64 f32 f16 bf16, i64 i32 i16 i8, u64 u32 u16 u8, bool, c64, f8_e4m3,
     * f8_e5m2, f8_e8m0, f6_e2m3, f6_e3m2, f4, and GGUF's quantised dtypes, such as q4_k, which
     * store a block of elements in a number of bytes and are divided only between blocks. NULL:
     * "f32" */
    const char *dtype;
    /* NULL: the name up to and including its first component of digits ("model.layers.10" for
     * "model.layers.10.mlp.up.weight"); if it has none, the name without its last component
     * ("embed" for "embed.weight"); if it has only one component, the name. Dots separate
     * components. */
    const char *layer;
    bool always_gather; /* every rank keeps the full parameter */

    uint64_t count;       /* elements: the product of the shape */
    uint64_t size_bytes;  /* count / block_count · block_bytes */
    uint64_t block_count; /* elements in a block of the dtype; 1 for ordinary dtypes */
    uint64_t block_bytes;
    uint64_t offset_bytes; /* in lists: from the start of the file that holds it; otherwise 0 */
    /* In lists from an index: the file that holds the parameter, in the folder of the index.
     * Otherwise NULL. */
    const char *file;
} tsr_shard_param;

/* Compares names in natural order: sequences of digits are compared as numbers, so that "layer2" is
 * before "layer10"; all other bytes are compared by their values. If that finds no difference, the
 * byte order of the names decides. Returns a negative number, 0 or a positive number, as strcmp.
 * The names must not be NULL. */
TSR_API int tsr_shard_compare_names(const char *a, const char *b);

/* Lists of patterns, which select names, as in `gather` and `full_layers` below. They end with
 * NULL.
 * `*` stands for any text, `?` for one character, `[a-z]` for one of a set, `[!a-z]` for one
 * outside it; `\` removes the special meaning of the next character. A pattern without a dot must
 * match one full component of the name, a pattern with a dot the full name: "head" matches
 * "lm.head.weight" but not "multi_head.weight", and "embed*" matches "model.embed_tokens.weight".
 * The last pattern that matches decides; a pattern that starts with `!` excludes: {"embed*",
 * "!embed_positions"}. Malformed patterns ("[a", "\", "!", "") are errors. */

/* Strategies ----------------------------------------------------------------------------------- */

/* The input of a strategy: parameters with every field set, and the ranks. */
typedef struct tsr_shard_request {
    uint64_t param_count;          /* at least 1 */
    const tsr_shard_param *params; /* for tsr_shard_request_param */
    int ranks;
    const double *rates;          /* [ranks] or NULL */
    const uint64_t *memory_bytes; /* [ranks] or NULL; UINT64_MAX: no limit */
} tsr_shard_request;
/* Returns parameter `index`, or NULL if there is none. */
TSR_API const tsr_shard_param *tsr_shard_request_param(const tsr_shard_request *request,
                                                       uint64_t index);

/* The interface of all strategies; a strategy of your own is such a struct. `assign` writes the
 * range that rank r keeps of parameter p to ranges[p · ranks + r]; all ranges are 0 before. The
 * ranges of parameters with always_gather are ignored. An error of `assign` is returned with the
 * text that it recorded, if any. The result is checked. */
typedef struct tsr_shard_strategy {
    size_t struct_size;
    const char *name; /* 1 … 63 bytes of UTF-8 */
    tsr_status (*assign)(void *user, const tsr_shard_request *request, tsr_shard_range *ranges);
    void *user;
    void (*destroy)(void *user); /* NULL: nothing to do */
} tsr_shard_strategy;

typedef enum tsr_shard_kind {
    /* Each parameter is partitioned over all ranks. */
    TSR_SHARD_FULL = 0,
    /* Each layer belongs to one rank. Layers are assigned from the largest to the smallest (layers
     * of the same size in natural order of their names), each to the rank that has the fewest bytes
     * for its rate and enough memory for them; if several ranks are equal, to the lowest. Source:
     * Graham, "Bounds on multiprocessing timing anomalies" (SIAM J. Appl. Math. 17, 1969): with
     * equal rates and without limits, the largest rank has at most 4/3 of the best possible
     * maximum. */
    TSR_SHARD_LAYERWISE = 1,
    /* FULL for layers that match `full_layers`; LAYERWISE for other layers that match
     * `layerwise_layers`; FULL for the rest. Either list may be empty. LAYERWISE takes the bytes
     * that FULL has assigned into account. */
    TSR_SHARD_HYBRID = 2,
    /* Each parameter is partitioned so that a rank's bytes over the full model are in proportion to
     * its rate, within its memory. */
    TSR_SHARD_WEIGHTED = 3
} tsr_shard_kind;

/* Returns "full", "layerwise", "hybrid" or "weighted", or "?" for any other value. The string is in
 * static storage. */
TSR_API const char *tsr_shard_kind_name(tsr_shard_kind kind);
/* Finds the kind called `name`. Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_kind_parse(const char *name, tsr_shard_kind *out);

typedef struct tsr_shard_strategy_params {
    size_t struct_size;
    tsr_shard_kind kind;
    /* FULL, HYBRID: EVEN, STRICT or UNEVEN. */
    tsr_partition_kind partition;
    /* FULL, HYBRID, WEIGHTED: ranges start at multiples of this number of elements, and always at a
     * block of the dtype. 0: 1. */
    uint64_t align;
    /* HYBRID: lists of patterns for the layers' names. Both NULL:
     * {"transformer", "attention"} and {"classifier", "head"}. One of them NULL: an empty list. */
    const char *const *full_layers;
    const char *const *layerwise_layers;
} tsr_shard_strategy_params;
#define tsr_shard_strategy_params(...)                                                             \
    (&(tsr_shard_strategy_params){.struct_size = sizeof(tsr_shard_strategy_params), __VA_ARGS__})

/* Creates one of the strategies above. `params` may be NULL; everything it points to is copied.
 * Errors: TSR_ERR_INVALID for an unknown kind, a partition that the kind does not support, or a
 * malformed pattern; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_strategy_create(const tsr_shard_strategy_params *params,
                                                           tsr_shard_strategy **out);
/* Destroys a strategy from tsr_shard_strategy_create, not one of your own. Sets *strategy to NULL.
 * NULL is allowed. */
TSR_API void tsr_shard_strategy_destroy(tsr_shard_strategy **strategy);

/* Plans ---------------------------------------------------------------------------------------- */

typedef struct tsr_shard_plan tsr_shard_plan;

typedef struct tsr_shard_plan_params {
    size_t struct_size;
    int ranks; /* 1 … TSR_SHARD_MAX_RANKS */
    /* Patterns for the names of parameters that every rank keeps in full. If none matches, the
     * parameter's own always_gather decides. */
    const char *const *gather;
    /* The speed of each rank, [ranks], as in tsr_partition_params; NULL: all the same. It
     * determines how WEIGHTED divides parameters, to which rank LAYERWISE assigns layers, and in
     * every plan the imbalance of the summary. */
    const double *rates;
    /* The bytes that each rank can hold, [ranks]; 0: no limit. A plan that needs more is an
     * error. */
    const uint64_t *memory_bytes;
} tsr_shard_plan_params;
#define tsr_shard_plan_params(...)                                                                 \
    (&(tsr_shard_plan_params){.struct_size = sizeof(tsr_shard_plan_params), __VA_ARGS__})

/* Creates the plan of a strategy for parameters and ranks. The plan keeps copies of all arguments.
 * Errors: TSR_ERR_INVALID for an empty list, a bad name, shape, dtype or pattern, two parameters
 * with the same name, a strategy that leaves elements out or assigns them twice, or a rank whose
 * memory is too small; TSR_ERR_OVERFLOW if sizes do not fit in 63 bits; TSR_ERR_NO_MEMORY; errors
 * of the strategy. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_create(const tsr_shard_strategy *strategy,
                                                       uint64_t param_count,
                                                       const tsr_shard_param *params,
                                                       const tsr_shard_plan_params *options,
                                                       tsr_shard_plan **out);
TSR_API void tsr_shard_plan_destroy(tsr_shard_plan **plan);

TSR_API int tsr_shard_plan_ranks(const tsr_shard_plan *plan);
TSR_API uint64_t tsr_shard_plan_param_count(const tsr_shard_plan *plan);
/* Returns parameter `index`, in the order in which they were given, or NULL if there is none. Its
 * always_gather says whether the plan gathers it. It belongs to the plan. */
TSR_API const tsr_shard_param *tsr_shard_plan_param(const tsr_shard_plan *plan, uint64_t index);
/* Finds the index of the parameter with this name. Errors: TSR_ERR_NOT_FOUND naming it. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_find(const tsr_shard_plan *plan, const char *name,
                                                     uint64_t *param);

/* Gets the range that a rank keeps of a parameter. Every rank keeps all elements of an
 * always-gathered parameter; a rank that keeps nothing has count 0. Errors: TSR_ERR_INVALID if
 * there is no such parameter or rank. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_range(const tsr_shard_plan *plan, uint64_t param,
                                                      int rank, tsr_shard_range *range);
/* Gets the rank that keeps an element of a parameter, where `element` counts in row-major order;
 * TSR_SHARD_EVERY_RANK for an always-gathered parameter. Errors: TSR_ERR_INVALID if there is no
 * such parameter or element. */
#define TSR_SHARD_EVERY_RANK (-1)
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_owner(const tsr_shard_plan *plan, uint64_t param,
                                                      uint64_t element, int *rank);

/* The sums of what one rank keeps. */
typedef struct tsr_shard_rank_total {
    size_t struct_size;
    uint64_t sharded_bytes;  /* bytes of the rank's shards */
    uint64_t gathered_bytes; /* bytes of always-gathered parameters; the same on every rank */
    uint64_t total_bytes;    /* the sum of the two */
    uint64_t shard_count;    /* parameters of which it keeps a non-empty shard */
} tsr_shard_rank_total;
/* Gives the sums of a rank. Errors: TSR_ERR_INVALID if there is no such rank. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_get_rank_total(const tsr_shard_plan *plan, int rank,
                                                               tsr_shard_rank_total *total);

/* What a plan was made from, and its sums. Pointers belong to the plan. */
typedef struct tsr_shard_summary {
    size_t struct_size;
    const char *strategy;         /* the strategy's name */
    const double *rates;          /* as given to tsr_shard_plan_create: [ranks], or NULL */
    const uint64_t *memory_bytes; /* as given to tsr_shard_plan_create: [ranks], or NULL */
    uint64_t model_bytes;         /* bytes of the full model */
    uint64_t sharded_bytes;       /* bytes of the parameters that are divided */
    uint64_t gathered_bytes;      /* bytes of always-gathered parameters */
    uint64_t gathered_count;      /* the number of always-gathered parameters */
    uint64_t max_bytes;           /* total_bytes of the rank that has the most */
    uint64_t least_bytes;         /* total_bytes of the rank that has the least */
    /* The time that the slowest rank needs for its shards, relative to a perfect division: the
     * largest sharded_bytes / rate of a rank, over the sum of all sharded_bytes / the sum of all
     * rates. 1 is perfect, larger is slower. Infinite if a rank of rate 0 has a shard. */
    double imbalance;
} tsr_shard_summary;
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_get_summary(const tsr_shard_plan *plan,
                                                            tsr_shard_summary *summary);

/* Checks that the plan covers every element of every parameter exactly once. If `params` is not
 * NULL, also checks that it is for these parameters: the same number, order, names, shapes and
 * dtypes. Errors: TSR_ERR_INVALID naming the first difference. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_check(const tsr_shard_plan *plan,
                                                      uint64_t param_count,
                                                      const tsr_shard_param *params);
/* Writes a plan as JSON (docs/sharding.md) to the caller's memory; a plan gives the same text on
 * every machine. *size_bytes is the number of bytes written or, if `text` is NULL, needed. The text
 * ends in a newline, without a zero byte. Errors: TSR_ERR_INVALID if `capacity_bytes` is too
 * small. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_save_json(const tsr_shard_plan *plan,
                                                          size_t capacity_bytes, char *text,
                                                          size_t *size_bytes);
/* Creates the plan that a JSON text describes. The text may be hostile. Errors: TSR_ERR_INVALID
 * naming the offset in bytes and the reason, also for a plan that leaves elements out;
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_load_json(const char *text, size_t size_bytes,
                                                          tsr_shard_plan **out);

/* Parameter lists from files ------------------------------------------------------------------- */

typedef struct tsr_shard_list tsr_shard_list;

typedef enum tsr_shard_format {
    TSR_SHARD_SAFETENSORS = 0,
    /* versions 2 and 3, little-endian; of a model in several files, the first one,
     * NAME-00001-of-00003.gguf, beside the others */
    TSR_SHARD_GGUF = 1,
    TSR_SHARD_JSON = 2, /* a list of parameters, see docs/sharding.md */
    /* model.safetensors.index.json, and the files that it names, in the same folder */
    TSR_SHARD_INDEX = 3
} tsr_shard_format;

/* Returns "safetensors", "gguf", "json" or "index", or "?" for any other value. The string is in
 * static storage. */
TSR_API const char *tsr_shard_format_name(tsr_shard_format format);

/* Reads the list of parameters of a model's file, in the file's order (for a model in several
 * files: file by file, in natural order of the files' names). Shapes are row-major: the order of
 * GGUF's dimensions is reversed. The contents determine the format. If `path` is a folder, reads
 * its model.safetensors or model.safetensors.index.json. Only the header is read.
 *
 * The file may be hostile. Errors: TSR_ERR_INVALID for a header that is wrong or longer than the
 * file, a tensor outside the file, or tensors that overlap or have the same name, with the offset
 * in bytes and the reason; TSR_ERR_NOT_FOUND if the file does not exist; TSR_ERR_IO if it cannot be
 * read; TSR_ERR_UNSUPPORTED for an unknown version or dtype; TSR_ERR_NO_MEMORY, which headers of up
 * to 100 MB can cause. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_list_open(const char *path, tsr_shard_list **out);

TSR_API void tsr_shard_list_destroy(tsr_shard_list **list);

TSR_API tsr_shard_format tsr_shard_list_format(const tsr_shard_list *list);
TSR_API uint64_t tsr_shard_list_param_count(const tsr_shard_list *list);
/* Returns parameter `index`, or NULL if there is none. It belongs to the list. The parameters
 * follow each other in memory, so parameter 0 is the array for tsr_shard_plan_create. */
TSR_API const tsr_shard_param *tsr_shard_list_param(const tsr_shard_list *list, uint64_t index);

#ifdef __cplusplus
}
#endif

#endif
