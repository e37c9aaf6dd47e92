/* tessera bench embedding: rows of a table at random indices, and their gradients. */
#include <stdlib.h>
#include <string.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/bench.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

#define VOCABULARY 32768
#define WIDTH 1024
#define TOKENS 2048
#define TABLE_BYTES ((uint64_t)VOCABULARY * WIDTH * sizeof(float))
#define ROWS_BYTES ((uint64_t)TOKENS * WIDTH * sizeof(float))

typedef struct embedding {
    bench_context *context;
    float *table, *dy, *result; /* `result` has the size of the table */
    int32_t indices[TOKENS];
    tsr_group *group;
    tsr_layer *layer;
    tsr_layer_saved *saved;
    tsr_tensor *device_x, *device_y, *device_dy;
} embedding;

static tsr_status forward(tsr_stream *stream, void *user)
{
    (void)stream; /* not needed: the layer records on the stream of its group */
    embedding *test = user;
    tsr_tensor_destroy(&test->device_y);
    return tsr_layer_forward(test->layer, test->device_x, NULL, &test->device_y);
}

/* Runs a backward pass, which adds to the existing gradients. */
static tsr_status backward(tsr_stream *stream, void *user)
{
    (void)stream;
    embedding *test = user;
    return tsr_layer_backward(test->layer, test->saved, test->device_dy, NULL);
}

static bool create(embedding *test)
{
    bench_context *context = test->context;
    tsr_device *device = context->device;
    const int64_t tokens[] = {TOKENS}, rows[] = {TOKENS, WIDTH};
    test->table = cli_alloc((size_t)VOCABULARY * WIDTH, sizeof(float));
    test->result = cli_alloc((size_t)VOCABULARY * WIDTH, sizeof(float));
    test->dy = cli_alloc((size_t)TOKENS * WIDTH, sizeof(float));
    bench_random_values(test->table, (uint64_t)VOCABULARY * WIDTH, TSR_F32, 61);
    bench_random_values(test->dy, (uint64_t)TOKENS * WIDTH, TSR_F32, 62);
    for (uint64_t i = 0; i < TOKENS; i++)
        test->indices[i] = (int32_t)(bench_random(63, i) % VOCABULARY);
    BENCH_TRY(context, tsr_group_create(NULL, context->stream, NULL, &test->group));
    BENCH_TRY(context, tsr_embedding_create(
                           tsr_embedding_params(.group = test->group, .vocabulary_size = VOCABULARY,
                                                .width = WIDTH,
                                                .init = tsr_init_params(.kind = TSR_INIT_NONE)),
                           &test->layer));
    BENCH_TRY(context,
              tsr_tensor_upload(context->stream, tsr_layer_parameter(test->layer, 0)->tensor,
                                test->table, TABLE_BYTES));
    BENCH_TRY(context, tsr_tensor_create(device, TSR_I32, 1, tokens, &test->device_x));
    BENCH_TRY(context, tsr_tensor_upload(context->stream, test->device_x, test->indices,
                                         sizeof test->indices));
    BENCH_TRY(context, tsr_tensor_create(device, TSR_F32, 2, rows, &test->device_dy));
    BENCH_TRY(context, tsr_tensor_upload(context->stream, test->device_dy, test->dy, ROWS_BYTES));
    BENCH_TRY(context,
              tsr_layer_forward(test->layer, test->device_x, &test->saved, &test->device_y));
    return true;
}

static void finish(embedding *test)
{
    tsr_tensor_destroy(&test->device_x);
    tsr_tensor_destroy(&test->device_y);
    tsr_tensor_destroy(&test->device_dy);
    tsr_layer_saved_destroy(&test->saved);
    tsr_layer_destroy(&test->layer);
    tsr_group_destroy(&test->group);
    free(test->table);
    free(test->dy);
    free(test->result);
    free(test);
}

static bool verify_forward(embedding *test, bench_row *row)
{
    bench_context *context = test->context;
    BENCH_TRY(context, forward(context->stream, test));
    BENCH_TRY(context,
              tsr_tensor_download(context->stream, test->device_y, test->result, ROWS_BYTES));
    bench_check_begin(&row->check, "every element against the table's");
    for (int64_t i = 0; i < TOKENS; i++)
        for (int64_t j = 0; j < WIDTH; j++)
            bench_check_value(&row->check, i, j, (double)test->result[i * WIDTH + j],
                              (double)test->table[(int64_t)test->indices[i] * WIDTH + j], 0);
    return bench_verified(context, row);
}

/* Clears the gradients, runs one backward pass and checks it. The device adds the rows of an index
 * in the order of the tokens; the expected sums are computed in the same order, so that device and
 * host must give equal bits. */
static bool verify_backward(embedding *test, bench_row *row)
{
    bench_context *context = test->context;
    tsr_layer_zero_grad(test->layer);
    BENCH_TRY(context, backward(context->stream, test));
    BENCH_TRY(context,
              tsr_tensor_download(context->stream, tsr_layer_parameter(test->layer, 0)->grad,
                                  test->result, TABLE_BYTES));
    float *want = cli_alloc((size_t)VOCABULARY * WIDTH, sizeof *want);
    for (int64_t i = 0; i < TOKENS; i++)
        for (int64_t j = 0; j < WIDTH; j++)
            want[(int64_t)test->indices[i] * WIDTH + j] += test->dy[i * WIDTH + j];
    bench_check_begin(&row->check, "every element of the table's gradient, starting from 0");
    for (int64_t i = 0; i < (int64_t)VOCABULARY * WIDTH; i++)
        bench_check_value(&row->check, i / WIDTH, i % WIDTH, (double)test->result[i],
                          (double)want[i], 0);
    free(want);
    return bench_verified(context, row);
}

typedef struct pass {
    const char *name;
    double bytes;
    tsr_status (*run)(tsr_stream *stream, void *user);
    bool (*verify)(embedding *test, bench_row *row);
} pass;

static const pass passes[] = {
    {"forward", sizeof(int32_t) * TOKENS + 2.0 * ROWS_BYTES, forward, verify_forward},
    {"backward", sizeof(int32_t) * TOKENS + 3.0 * ROWS_BYTES, backward, verify_backward},
};

static bool measure_embedding(embedding *test, const pass *which)
{
    bench_context *context = test->context;
    bench_row *row = bench_add(context, "embedding", BENCH_GBYTES, which->bytes);
    bench_text(row, "pass", "%s", which->name);
    bench_text(row, "dtype", "%s", tsr_dtype_name(TSR_F32));
    bench_integer(row, "tokens", TOKENS);
    bench_integer(row, "vocabulary", VOCABULARY);
    bench_integer(row, "width", WIDTH);
    row->memory = bench_memory_peak(context);
    return row->memory != NULL && which->verify(test, row) &&
           bench_measure(context, row, &(bench_task){.run = which->run, .user = test}) &&
           which->verify(test, row);
}

static bool run_embedding(bench_context *context)
{
    embedding *test = cli_alloc(1, sizeof *test);
    test->context = context;
    bool done =
        create(test) && measure_embedding(test, &passes[0]) && measure_embedding(test, &passes[1]);
    finish(test);
    return done;
}

const bench bench_embedding = {
    .name = "embedding",
    .summary = "rows of a table at random indices, and their gradients; GB/s",
    .help = "The layer of tsr_embedding_create on one device: 2048 rows of 1024 f32 at random "
            "indices of a table of 32768 rows. Forward reads and writes each row; backward reads "
            "its gradient and adds it to that of the table.\n",
    .run = run_embedding,
};
