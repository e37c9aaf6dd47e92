/* tessera bench plan: the time from a model's file to the plan of its shards. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/harness/bench.h"
#include "bench/harness/child.h"
#include "cli/lib/memory.h"

#define RANKS 8
#define LAYERS 80
#define PARAMS (LAYERS * 9 + 3)

/* The parameters of one layer of a model with 70 · 10^9 parameters in bf16. */
static const struct {
    const char *name;
    int64_t rows, columns; /* columns 0: the parameter is a vector */
} per_layer[] = {
    {"input_layernorm.weight", 8192, 0},          {"mlp.down_proj.weight", 8192, 28672},
    {"mlp.gate_proj.weight", 28672, 8192},        {"mlp.up_proj.weight", 28672, 8192},
    {"post_attention_layernorm.weight", 8192, 0}, {"self_attn.k_proj.weight", 1024, 8192},
    {"self_attn.o_proj.weight", 8192, 8192},      {"self_attn.q_proj.weight", 8192, 8192},
    {"self_attn.v_proj.weight", 1024, 8192},
};

typedef struct header {
    char *text;
    size_t size, capacity;
    uint64_t data_bytes;
} header;

CLI_PRINTF(2, 3) static void append(header *out, const char *format, ...)
{
    va_list arguments;
    if (out->capacity - out->size < 512)
        out->text = cli_resize(out->text, out->capacity += 65536, 1);
    va_start(arguments, format);
    out->size += (size_t)vsnprintf(out->text + out->size, 512, format, arguments);
    va_end(arguments);
}

static void append_tensor(header *out, const char *name, int64_t rows, int64_t columns)
{
    uint64_t bytes = (uint64_t)rows * (uint64_t)(columns == 0 ? 1 : columns) * 2;
    append(out, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%" PRId64, out->size > 1 ? "," : "", name,
           rows);
    if (columns != 0)
        append(out, ",%" PRId64, columns);
    append(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", out->data_bytes,
           out->data_bytes + bytes);
    out->data_bytes += bytes;
}

static header make_header(void)
{
    header out = {0};
    append(&out, "{");
    append_tensor(&out, "lm_head.weight", 32000, 8192);
    append_tensor(&out, "model.embed_tokens.weight", 32000, 8192);
    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < sizeof per_layer / sizeof *per_layer; i++) {
            char name[128];
            snprintf(name, sizeof name, "model.layers.%d.%s", layer, per_layer[i].name);
            append_tensor(&out, name, per_layer[i].rows, per_layer[i].columns);
        }
    append_tensor(&out, "model.norm.weight", 8192, 0);
    append(&out, "}");
    return out;
}

/* Writes the model's file. Only its header is written; the weights are a hole in the file, which
 * takes no disk space. */
static bool write_model(bench_context *context, const char *path, uint64_t *data_bytes)
{
    header head = make_header();
    uint8_t size[8];
    for (int i = 0; i < 8; i++)
        size[i] = (uint8_t)((uint64_t)head.size >> (8 * i));
    FILE *file = fopen(path, "wb");
    bool done = file != NULL && fwrite(size, sizeof size, 1, file) == 1 &&
                fwrite(head.text, head.size, 1, file) == 1 && fflush(file) == 0 &&
                ftruncate(fileno(file), (off_t)(sizeof size + head.size + head.data_bytes)) == 0;
    int reason = errno;
    if (file != NULL)
        fclose(file);
    free(head.text);
    *data_bytes = head.data_bytes;
    return done || bench_fail(context, "bench plan: cannot make %s with %" PRIu64 " bytes: %s",
                              path, head.data_bytes, strerror(reason));
}

typedef struct planner {
    char path[BENCH_FOLDER_SIZE + 32];
    tsr_shard_kind kind;
    tsr_shard_plan *plan; /* the plan that the last run made */
} planner;

static tsr_status make_plan(tsr_stream *stream, void *user)
{
    (void)stream;
    planner *own = user;
    static const char *const divided[] = {"model.layers.*", NULL};
    static const char *const whole[] = {"lm_head", "model.embed_tokens", NULL};
    static const double rates[RANKS] = {3, 3, 2, 2, 1, 1, 1, 1};
    tsr_shard_list *list = NULL;
    tsr_shard_strategy *strategy = NULL;
    bool is_hybrid = own->kind == TSR_SHARD_HYBRID;
    tsr_shard_plan_destroy(&own->plan);
    tsr_status status = tsr_shard_list_open(own->path, &list);
    if (status == TSR_OK)
        status = tsr_shard_strategy_create(
            tsr_shard_strategy_params(.kind = own->kind, .full_layers = is_hybrid ? divided : NULL,
                                      .layerwise_layers = is_hybrid ? whole : NULL),
            &strategy);
    if (status == TSR_OK)
        status = tsr_shard_plan_create(
            strategy, tsr_shard_list_param_count(list), tsr_shard_list_param(list, 0),
            tsr_shard_plan_params(.ranks = RANKS,
                                  .rates = own->kind == TSR_SHARD_WEIGHTED ? rates : NULL),
            &own->plan);
    tsr_shard_strategy_destroy(&strategy);
    tsr_shard_list_destroy(&list);
    return status;
}

/* Checks that the ranks' ranges of each parameter are consecutive and cover it, and that all
 * parameters together have the model's size. */
static bool check_sharding_plan(bench_context *context, bench_row *row, const planner *own,
                                uint64_t data_bytes)
{
    uint64_t count = tsr_shard_plan_param_count(own->plan), bytes = 0;
    bench_check_begin(&row->check, "every parameter's ranges cover it, all bytes are there");
    bench_check_value(&row->check, -1, 0, (double)count, PARAMS, 0);
    for (uint64_t p = 0; p < count; p++) {
        uint64_t covered = 0;
        for (int rank = 0; rank < RANKS; rank++) {
            tsr_shard_range range;
            BENCH_TRY(context, tsr_shard_plan_range(own->plan, p, rank, &range));
            if (range.count > 0)
                bench_check_value(&row->check, (int64_t)p, rank, (double)range.start,
                                  (double)covered, 0);
            covered += range.count;
        }
        bench_check_value(&row->check, (int64_t)p, RANKS, (double)covered,
                          (double)tsr_shard_plan_param(own->plan, p)->count, 0);
        bytes += covered * 2;
    }
    bench_check_value(&row->check, -1, 1, (double)bytes, (double)data_bytes, 0);
    return bench_verified(context, row);
}

static bool measure_all(bench_context *context, planner *own)
{
    uint64_t data_bytes;
    if (!write_model(context, own->path, &data_bytes))
        return false;
    for (int kind = TSR_SHARD_FULL; kind <= TSR_SHARD_WEIGHTED; kind++) {
        bench_row *row = bench_add(context, "plan", BENCH_TIME, 1);
        own->kind = (tsr_shard_kind)kind;
        bench_text(row, "strategy", "%s", tsr_shard_kind_name(own->kind));
        bench_integer(row, "ranks", RANKS);
        bench_integer(row, "parameters", PARAMS);
        bench_integer(row, "bytes", (int64_t)data_bytes);
        BENCH_TRY(context, make_plan(NULL, own));
        if (!check_sharding_plan(context, row, own, data_bytes) ||
            !bench_measure(context, row,
                           &(bench_task){.run = make_plan, .user = own, .host_only = true}))
            return false;
    }
    return true;
}

static bool run_sharding_plan(bench_context *context)
{
    planner own = {.kind = TSR_SHARD_FULL};
    char folder[BENCH_FOLDER_SIZE];
    if (!bench_folder_create(folder))
        return bench_fail(context, "bench plan: no temporary folder in %.200s: %s",
                          bench_folder_parent(), strerror(errno));
    snprintf(own.path, sizeof own.path, "%s/model.safetensors", folder);
    bool done = measure_all(context, &own);
    tsr_shard_plan_destroy(&own.plan);
    bench_folder_remove(folder);
    return done;
}

const bench bench_plan = {
    .name = "plan",
    .summary = "sharding plan of a model of 70 billion parameters, from its file",
    .help = "Reads the header of a safetensors file with 723 parameters and 138 GB of weights (a "
            "sparse file in a temporary folder), and plans it for 8 ranks with each strategy. "
            "Weights are not read. Verified: the ranges of each parameter cover it, and the bytes "
            "of all ranks add up.\n",
    .host_only = true,
    .run = run_sharding_plan,
};
