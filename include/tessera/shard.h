/* Which rank keeps which part of a model's parameters: partitions of a length, strategies that
 * apply them to a list of parameters, the plans that come out, and parameter lists from files,
 * whose weights are not read. Pure arithmetic: no device, no network.
 *
 *     tsr_shard_list *list = NULL;
 *     tsr_shard_strategy *strategy = NULL;
 *     tsr_shard_plan *plan = NULL;
 *     tsr_shard_list_open("model.safetensors", &list);
 *     tsr_shard_strategy_create(tsr_shard_strategy_params(.kind = TSR_SHARD_FULL), &strategy);
 *     tsr_shard_plan_create(strategy, tsr_shard_list_param_count(list),
 * tsr_shard_list_param_array(list), tsr_shard_plan_params(.ranks = 8), &plan);
 *     tsr_shard_plan_range(plan, 17, 3, &range);       // what rank 3 keeps of parameter 17
 *
 * Only integers decide, so all ranks that compute a plan from the same input compute the same one.
 * Positions and counts are in elements unless their name says bytes. Lists and plans do not change
 * once made and may be read by any number of threads; functions without either are thread-safe. */
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
#define TSR_SHARD_MAX_RANGES 67108864 /* parameters × ranks of one plan */
#define TSR_SHARD_MAX_NAME 4096       /* bytes */

/* Partitions ----------------------------------------------------------------------------------- */

/* Elements start … start + count − 1. */
typedef struct tsr_shard_range {
    uint64_t start;
    uint64_t count;
} tsr_shard_range;

typedef enum tsr_partition_kind {
    /* Each rank ⌈n / ranks⌉; the last ones get what is left: 5 over 4 ranks is 2, 2, 1, 0. */
    TSR_PARTITION_EVEN = 0,
    /* Each rank n / ranks; an error when that is no whole number. */
    TSR_PARTITION_STRICT = 1,
    /* Sizes that differ by at most one: 5 over 4 ranks is 2, 1, 1, 1. */
    TSR_PARTITION_UNEVEN = 2,
    /* In proportion to `rates`: 5 over rates 3 and 1 is 4, 1. Each rank's share is rounded down,
     * and what is left goes to the largest remainders, lower ranks first (Hamilton's method). */
    TSR_PARTITION_WEIGHTED = 3
} tsr_partition_kind;

typedef struct tsr_partition_params {
    tsr_partition_kind kind;
    /* WEIGHTED: how fast each rank is, in any unit; 0: gets nothing. Taken as a multiple of the
     * largest / 2^32, rounded, but not to 0. NULL: all the same. */
    const double *rates;
    /* The most each rank can take; NULL: no limit. What does not fit goes to the other ranks, by
     * their shares, where sizes may differ (UNEVEN, WEIGHTED), and is an error elsewhere. */
    const uint64_t *limits;
    /* Every range starts at a multiple of this many elements, and all the sizes above are in such
     * units, of which the very last may be short. 0: 1. */
    uint64_t align;
} tsr_partition_params;
#define tsr_partition_params(...) (&(tsr_partition_params){__VA_ARGS__})

/* Cuts `length` elements into consecutive ranges, one for each rank, which it writes to the
 * caller's ranges[ranks]. A rank that gets nothing has count 0 and starts where its neighbours
 * meet. `params` may be NULL. Errors: TSR_ERR_INVALID for ranks outside 1 … TSR_SHARD_MAX_RANKS,
 * a length of 2^63 or more, rates that are negative, not finite or all 0, a length that STRICT
 * cannot divide, one that the limits cannot hold; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_partition(uint64_t length, int ranks,
                                               const tsr_partition_params *params,
                                               tsr_shard_range *ranges);

/* That ranges[ranks], in any order, cover each of `length` elements exactly once. Errors:
 * TSR_ERR_INVALID naming the first elements that have no rank or two, or the range that is outside;
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_partition_check(uint64_t length, int ranks,
                                                     const tsr_shard_range *ranges);

/* Parameters ----------------------------------------------------------------------------------- */

/* How elements are stored. Quantised types keep a block of elements in some bytes, and are cut
 * between blocks only. */
typedef struct tsr_shard_dtype {
    const char *name;     /* "f32"; static storage */
    uint64_t block_count; /* elements in a block; 1 for ordinary types */
    uint64_t block_bytes;
} tsr_shard_dtype;

/* The dtype called `name`, in upper or lower case: f64 f32 f16 bf16, i64 i32 i16 i8, u64 u32 u16
 * u8, bool, c64, f8_e4m3, f8_e5m2, f8_e8m0, f6_e2m3, f6_e3m2, f4, and GGUF's quantised ones, such
 * as q4_k. Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_dtype_find(const char *name, tsr_shard_dtype *out);

/* A parameter of a model. Who gives one fills in the first part; in what the library gives out,
 * everything is set. Strings are the caller's, who may free them when the call is over, or belong
 * to the list or plan they come from. */
typedef struct tsr_shard_param {
    const char *name; /* UTF-8, 1 … TSR_SHARD_MAX_NAME bytes; unique in a list */
    int ndim;         /* 0: one element */
    int64_t shape[TSR_SHARD_MAX_DIMS];
    const char *dtype;  /* NULL: "f32" */
    const char *layer;  /* NULL: tsr_shard_layer_of(name) */
    bool always_gather; /* every rank keeps all of it */

    uint64_t count;        /* elements: the product of the shape */
    uint64_t size_bytes;   /* count / block_count · block_bytes */
    uint64_t block_count;  /* of the dtype */
    uint64_t block_bytes;  /* of the dtype */
    uint64_t offset_bytes; /* in lists: from the start of the file that holds it; else 0 */
    const char *file;      /* in lists from an index: that file, beside the index; else NULL */
} tsr_shard_param;

/* The layer of a parameter that names none: the name through its first component of digits
 * ("model.layers.10" of "model.layers.10.mlp.up.weight"), else without its last component ("embed"
 * of "embed.weight"), else all of it. Components are separated by dots. Writes it, cut short but
 * always terminated unless `size` is 0, to `text` and returns that. `name` is not NULL. */
TSR_API char *tsr_shard_layer_of(const char *name, char *text, size_t size);

/* Natural order: runs of digits compare as numbers, so that "layer2" comes before "layer10", other
 * bytes as they are; where that makes no difference, plain byte order decides. Negative, 0 or
 * positive, as strcmp; neither name is NULL. */
TSR_API int tsr_shard_compare_names(const char *a, const char *b);

/* Patterns. `*` stands for any text, `?` for one character, `[a-z]` for one of a set, `[!a-z]` for
 * one outside it; `\` takes away a character's meaning. A pattern without a dot has to match one
 * whole component of the name, one with a dot the whole name: "head" matches "lm.head.weight" but
 * not "multi_head.weight", and "embed*" matches "model.embed_tokens.weight".
 *
 * In a list of patterns, ended by NULL, the last one that matches decides; one that starts with `!`
 * says that the name is not meant: {"embed*", "!embed_positions"}. *matched is `otherwise` when
 * none matches. Errors: TSR_ERR_INVALID for a pattern that cannot be read ("[a", "\", "!", "").
 * `patterns` may be NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_match(const char *const *patterns, const char *name,
                                                 bool otherwise, bool *matched);

/* Strategies ----------------------------------------------------------------------------------- */

/* What a strategy is asked: parameters with every field set, and the ranks. */
typedef struct tsr_shard_request {
    uint64_t param_count; /* at least 1 */
    const tsr_shard_param *params;
    int ranks;
    const double *rates;          /* [ranks] or NULL */
    const uint64_t *memory_bytes; /* [ranks] or NULL; UINT64_MAX: no limit */
} tsr_shard_request;

/* The interface of all strategies: one of your own is such a struct. `assign` writes what rank r
 * keeps of parameter p to ranges[p · ranks + r], which are all 0 before. Parameters with
 * always_gather are not its business: their ranges are overwritten. A failure is passed on, with
 * what the function has recorded, if anything, as its text. Whatever it writes is checked. */
typedef struct tsr_shard_strategy {
    const char *name; /* 1 … 63 bytes of UTF-8 */
    tsr_status (*assign)(void *user, const tsr_shard_request *request, tsr_shard_range *ranges);
    void *user;
    void (*destroy)(void *user); /* NULL: nothing to do */
} tsr_shard_strategy;

typedef enum tsr_shard_kind {
    /* Each parameter is partitioned over all ranks. */
    TSR_SHARD_FULL = 0,
    /* Each layer belongs to one rank. Layers are taken from the largest to the smallest, equal ones
     * in natural order of their names, each to the rank that then has the fewest bytes for its rate
     * and memory for them, the lowest of these. Source: Graham, "Bounds on multiprocessing timing
     * anomalies" (SIAM J. Appl. Math. 17, 1969); for equal rates and without limits at most 4/3 of
     * the best balance. */
    TSR_SHARD_LAYERWISE = 1,
    /* FULL for layers that match `full_layers`, else LAYERWISE for layers that match
     * `layerwise_layers`, else FULL. Either side may be empty. LAYERWISE balances what FULL has
     * left. */
    TSR_SHARD_HYBRID = 2,
    /* Each parameter is partitioned so that a rank's bytes over the whole model are in proportion
     * to its rate, and bounded by its memory. */
    TSR_SHARD_WEIGHTED = 3
} tsr_shard_kind;

/* "full", "layerwise", "hybrid", "weighted"; "?" for a value that is no kind. Static storage. */
TSR_API const char *tsr_shard_kind_name(tsr_shard_kind kind);
/* The kind called `name`. Errors: TSR_ERR_NOT_FOUND naming the text. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_kind_parse(const char *name, tsr_shard_kind *out);

typedef struct tsr_shard_strategy_params {
    tsr_shard_kind kind;
    /* FULL, HYBRID: EVEN, STRICT or UNEVEN. */
    tsr_partition_kind partition;
    /* FULL, HYBRID, WEIGHTED: ranges start at multiples of this many elements, and always at whole
     * blocks of the dtype. 0: 1. */
    uint64_t align;
    /* HYBRID: patterns for tsr_shard_match, ended by NULL. Both NULL: {"transformer", "attention"}
     * and {"classifier", "head"}; one NULL: none. */
    const char *const *full_layers;
    const char *const *layerwise_layers;
} tsr_shard_strategy_params;
#define tsr_shard_strategy_params(...) (&(tsr_shard_strategy_params){__VA_ARGS__})

/* One of the strategies above. `params` may be NULL; what it points to is copied. Errors:
 * TSR_ERR_INVALID for an unknown kind, a partition that the kind does not have, a pattern that
 * cannot be read; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_strategy_create(const tsr_shard_strategy_params *params,
                                                           tsr_shard_strategy **out);
/* For strategies from tsr_shard_strategy_create; those of your own are yours. */
TSR_API void tsr_shard_strategy_destroy(tsr_shard_strategy **strategy);

/* Plans ---------------------------------------------------------------------------------------- */

typedef struct tsr_shard_plan tsr_shard_plan;

typedef struct tsr_shard_plan_params {
    int ranks; /* 1 … TSR_SHARD_MAX_RANKS */
    /* Patterns for parameters that every rank keeps all of, as for tsr_shard_match: the last one
     * that matches a parameter's name decides, and where none does, its own always_gather. */
    const char *const *gather;
    /* How fast each rank is, [ranks], as in tsr_partition_params; NULL: all the same. Decides how
     * WEIGHTED divides and to whom LAYERWISE gives layers, and in every plan what counts as
     * balanced. */
    const double *rates;
    /* What each rank can hold, [ranks]; 0: no limit. A plan that needs more is an error. */
    const uint64_t *memory_bytes;
} tsr_shard_plan_params;
#define tsr_shard_plan_params(...) (&(tsr_shard_plan_params){__VA_ARGS__})

/* The plan of a strategy for parameters on ranks. It keeps copies of everything. Errors:
 * TSR_ERR_INVALID for an empty list, a bad name, shape, dtype or pattern, two parameters with one
 * name, a strategy that leaves elements out or gives them twice, a rank whose memory is too small;
 * TSR_ERR_OVERFLOW when sizes do not fit 63 bits; TSR_ERR_NO_MEMORY; what the strategy returns. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_create(const tsr_shard_strategy *strategy,
                                                       uint64_t param_count,
                                                       const tsr_shard_param *params,
                                                       const tsr_shard_plan_params *options,
                                                       tsr_shard_plan **out);
TSR_API void tsr_shard_plan_destroy(tsr_shard_plan **plan);

/* The strategy's name, which belongs to the plan. */
TSR_API const char *tsr_shard_plan_strategy(const tsr_shard_plan *plan);
TSR_API int tsr_shard_plan_ranks(const tsr_shard_plan *plan);
/* As given to tsr_shard_plan_create: [ranks], or NULL. They belong to the plan. */
TSR_API const double *tsr_shard_plan_rates(const tsr_shard_plan *plan);
TSR_API const uint64_t *tsr_shard_plan_memory_bytes(const tsr_shard_plan *plan);
TSR_API uint64_t tsr_shard_plan_param_count(const tsr_shard_plan *plan);
/* The parameters in the order they were given; always_gather is what has been decided. They belong
 * to the plan. */
TSR_API const tsr_shard_param *tsr_shard_plan_param_array(const tsr_shard_plan *plan);
/* The number of the parameter with this name. Errors: TSR_ERR_NOT_FOUND naming it. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_find(const tsr_shard_plan *plan, const char *name,
                                                     uint64_t *param);

/* What a rank keeps of a parameter: of an always-gathered one all, on every rank. count 0 where it
 * keeps nothing. Errors: TSR_ERR_INVALID when there is no such parameter or rank. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_range(const tsr_shard_plan *plan, uint64_t param,
                                                      int rank, tsr_shard_range *range);
/* Which rank keeps an element of a parameter, the element counted in row-major order;
 * TSR_SHARD_EVERY_RANK for an always-gathered one. Errors: TSR_ERR_INVALID when there is no such
 * parameter or element. */
#define TSR_SHARD_EVERY_RANK (-1)
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_owner(const tsr_shard_plan *plan, uint64_t param,
                                                      uint64_t element, int *rank);

/* What one rank keeps, all parameters together. */
typedef struct tsr_shard_rank_total {
    uint64_t sharded_bytes;  /* of its shards */
    uint64_t gathered_bytes; /* of always-gathered parameters: the same on every rank */
    uint64_t total_bytes;    /* both */
    uint64_t shard_count;    /* parameters of which it keeps a shard that is not empty */
} tsr_shard_rank_total;
/* Errors: TSR_ERR_INVALID when there is no such rank. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_rank_total(const tsr_shard_plan *plan, int rank,
                                                           tsr_shard_rank_total *total);

/* The whole plan. */
typedef struct tsr_shard_summary {
    uint64_t model_bytes;    /* each parameter once */
    uint64_t sharded_bytes;  /* of those that are divided */
    uint64_t gathered_bytes; /* of those that are not */
    uint64_t gathered_count; /* how many these are */
    uint64_t max_bytes;      /* total_bytes of the rank with the most, */
    uint64_t least_bytes;    /* and with the least */
    /* How much longer the slowest rank takes for its shards than if they were divided perfectly:
     * the largest of sharded_bytes / rate, over the sum of all sharded_bytes / the sum of all
     * rates. 1 is perfect; infinite when a rank of rate 0 has something to do. */
    double imbalance;
} tsr_shard_summary;
TSR_API void tsr_shard_plan_summary(const tsr_shard_plan *plan, tsr_shard_summary *summary);

/* That the plan covers every element of every parameter exactly once, and, where `params` is not
 * NULL, that it is for these very parameters: as many, in this order, with the same names, shapes
 * and dtypes. Errors: TSR_ERR_INVALID naming the first difference. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_check(const tsr_shard_plan *plan,
                                                      uint64_t param_count,
                                                      const tsr_shard_param *params);
/* True when two plans say the same, in all that their JSON has. */
TSR_API bool tsr_shard_plan_equal(const tsr_shard_plan *a, const tsr_shard_plan *b);

/* A plan as JSON (docs/sharding.md), the same text for the same plan on every machine. Written to
 * the caller's memory; *size_bytes is what was written, or with `text` NULL what would be. Ends in
 * a newline, without a zero byte. Errors: TSR_ERR_INVALID when `capacity_bytes` is too small. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_save_json(const tsr_shard_plan *plan,
                                                          size_t capacity_bytes, char *text,
                                                          size_t *size_bytes);
/* The plan a JSON text holds. Any bytes may be given. Errors: TSR_ERR_INVALID naming the offset in
 * bytes and the reason, also for a plan that leaves elements out; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_plan_load_json(const char *text, size_t size_bytes,
                                                          tsr_shard_plan **out);

/* Parameter lists from files ------------------------------------------------------------------- */

typedef struct tsr_shard_list tsr_shard_list;

typedef enum tsr_shard_format {
    TSR_SHARD_SAFETENSORS = 0,
    TSR_SHARD_GGUF = 1, /* versions 2 and 3, little-endian */
    TSR_SHARD_JSON = 2, /* a list of parameters, see docs/sharding.md */
    TSR_SHARD_INDEX = 3 /* model.safetensors.index.json, with the files it names beside it */
} tsr_shard_format;

/* "safetensors", "gguf", "json", "index"; "?" for a value that is none. Static storage. */
TSR_API const char *tsr_shard_format_name(tsr_shard_format format);

/* The parameters of a model's file, in the file's order (of an index: file by file, in natural
 * order of their names). Shapes are row-major: GGUF's dimensions are turned around. The name's end
 * tells the format (.safetensors, .gguf, .json), else the content. Reads the header only.
 *
 * The file may be hostile. Errors: TSR_ERR_INVALID for a header that is wrong or goes beyond the
 * file, a tensor outside it, tensors that overlap or have one name, with the offset in bytes and
 * the reason; TSR_ERR_NOT_FOUND when the file does not exist; TSR_ERR_IO when it cannot be read;
 * TSR_ERR_UNSUPPORTED for a version or dtype that this library does not know; TSR_ERR_NO_MEMORY,
 * which headers up to 100 MB can cause. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_list_open(const char *path, tsr_shard_list **out);

/* The same from memory: `data` is the first size_bytes of a file of file_bytes, and has to contain
 * its header. Not for indices. Errors as above. */
TSR_API TSR_NODISCARD tsr_status tsr_shard_list_parse(tsr_shard_format format, const void *data,
                                                      size_t size_bytes, uint64_t file_bytes,
                                                      tsr_shard_list **out);
TSR_API void tsr_shard_list_destroy(tsr_shard_list **list);

TSR_API tsr_shard_format tsr_shard_list_format(const tsr_shard_list *list);
TSR_API uint64_t tsr_shard_list_param_count(const tsr_shard_list *list);
/* They belong to the list. */
TSR_API const tsr_shard_param *tsr_shard_list_param_array(const tsr_shard_list *list);

#ifdef __cplusplus
}
#endif

#endif
