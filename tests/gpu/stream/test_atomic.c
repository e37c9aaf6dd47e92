/* Operations of several commands, in which each call that can fail does so, one after another.
 * Depending on the status, their outputs must be, bit for bit, unchanged or complete. */
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "gpu/internal.h"
#include "gpu/matmul/matmul.h"
#include "gpu/stream/state.h"
#include "support/check_main.h"
#include "support/gpu.h"

/* The tensors of a call ------------------------------------------------------------------------ */

enum { TENSORS = 6, TARGETS = 3, NEARLY_A_BATCH = 94 };

/* Each tensor has its own contiguous memory. The operation gets the view `of` that memory, if there
 * is one, or the tensor itself. */
typedef struct scene {
    tsr_tensor *memory[TENSORS], *of[TENSORS];
    int count, targets; /* number of tensors that are written; they come first */
} scene;

typedef struct operation {
    const char *name;
    void (*arrange)(scene *s);
    tsr_status (*run)(const scene *s);
} operation;

static void add(scene *s, tsr_dtype dtype, int ndim, const int64_t *shape, double value)
{
    ck_assert_int_lt(s->count, TENSORS);
    tsr_tensor *memory = gpu_new(dtype, ndim, shape);
    GPU_OK(tsr_fill(queue, memory, value));
    s->memory[s->count++] = memory;
}

static void add_matrix(scene *s, tsr_dtype dtype, int64_t rows, int64_t columns, double value)
{
    add(s, dtype, 2, (int64_t[]){rows, columns}, value);
}

static void add_vector(scene *s, tsr_dtype dtype, int64_t count, double value)
{
    add(s, dtype, 1, &count, value);
}

static tsr_layout *layout_of(scene *s, tsr_layout *layout)
{
    *layout = *tsr_tensor_layout(s->memory[s->count - 1]);
    return layout;
}

static void view_last(scene *s, const tsr_layout *layout)
{
    GPU_OK(tsr_tensor_view(s->memory[s->count - 1], layout, &s->of[s->count - 1]));
}

/* Adds a view without the last column. */
static void add_with_gaps(scene *s, tsr_dtype dtype, int64_t rows, int64_t columns, double value)
{
    tsr_layout layout;
    add_matrix(s, dtype, rows, columns, value);
    GPU_OK(tsr_layout_slice(layout_of(s, &layout), -1, 0, -1, 1, &layout));
    view_last(s, &layout);
}

static void transpose_last(scene *s)
{
    tsr_layout layout;
    GPU_OK(tsr_layout_transpose(layout_of(s, &layout), 0, 1, &layout));
    view_last(s, &layout);
}

/* Adds a view of every second element along every dimension. With more than four dimensions, the
 * operation on it is divided into many dispatches. */
static void add_every_second(scene *s, tsr_dtype dtype, int ndim, const int64_t *shape,
                             double value)
{
    tsr_layout layout;
    add(s, dtype, ndim, shape, value);
    layout_of(s, &layout);
    for (int i = 0; i < ndim; i++)
        GPU_OK(tsr_layout_slice(&layout, i, 0, TSR_END, 2, &layout));
    view_last(s, &layout);
}

static tsr_tensor *at(const scene *s, int i)
{
    return i >= s->count ? NULL : s->of[i] ? s->of[i] : s->memory[i];
}

static void clear_away(scene *s)
{
    for (int i = 0; i < s->count; i++) {
        tsr_tensor_destroy(&s->of[i]);
        tsr_tensor_destroy(&s->memory[i]);
    }
    *s = (scene){0};
}

/* The contents of the targets ------------------------------------------------------------------ */

typedef struct contents {
    unsigned char *bytes[TARGETS];
    uint64_t size[TARGETS];
} contents;

static contents contents_of(const scene *s)
{
    contents c = {{NULL}, {0}};
    for (int i = 0; i < s->targets; i++) {
        const tsr_layout *layout = tsr_tensor_layout(s->memory[i]);
        c.size[i] = (uint64_t)tsr_layout_count(layout) * tsr_dtype_size(layout->dtype);
        c.bytes[i] = malloc(c.size[i]);
        ck_assert_ptr_nonnull(c.bytes[i]);
        GPU_OK(tsr_tensor_download(queue, s->memory[i], c.bytes[i], c.size[i]));
    }
    return c;
}

static bool same(const contents *a, const contents *b)
{
    for (int i = 0; i < TARGETS && a->bytes[i]; i++)
        if (memcmp(a->bytes[i], b->bytes[i], a->size[i]) != 0)
            return false;
    return true;
}

static void forget(contents *c)
{
    for (int i = 0; i < TARGETS; i++)
        free(c->bytes[i]);
}

/* Operations ----------------------------------------------------------------------------------- */

static const int64_t six[] = {6, 6, 6, 6, 6, 6}, eight[] = {5, 5, 5, 5, 3, 3, 3, 3};

static void arrange_pieces(scene *s)
{
    s->targets = 1;
    add_every_second(s, TSR_F32, 8, eight, 5);
}

static tsr_status fill(const scene *s)
{
    return tsr_fill(queue, at(s, 0), 3);
}

static void arrange_conversion(scene *s)
{
    s->targets = 1;
    add_with_gaps(s, TSR_BF16, 33, 130, 5);
    add_with_gaps(s, TSR_F32, 33, 130, 3);
}

static void arrange_transpose_to(scene *s, tsr_dtype dtype)
{
    s->targets = 1;
    add_with_gaps(s, dtype, 64, 130, 5);
    add_matrix(s, TSR_F32, 129, 64, 3);
    transpose_last(s);
}

static void arrange_transpose(scene *s)
{
    arrange_transpose_to(s, TSR_F32);
}

/* CPU drivers first pack a copy of the source, and convert that. */
static void arrange_transposed_conversion(scene *s)
{
    arrange_transpose_to(s, TSR_BF16);
}

static void arrange_rows(scene *s)
{
    s->targets = 1;
    add_with_gaps(s, TSR_F32, 20, 1025, 5);
    add_matrix(s, TSR_F32, 20, 1024, 3);
}

/* The operation needs more dispatches than a batch normally has commands. */
static void arrange_reversal(scene *s)
{
    static const int64_t fours[] = {4, 4, 4, 4, 4, 4, 4, 4};
    tsr_layout layout;
    s->targets = 1;
    add(s, TSR_F32, 8, fours, 5);
    add(s, TSR_F32, 8, fours, 3);
    layout_of(s, &layout);
    for (int i = 0; i < 4; i++)
        GPU_OK(tsr_layout_transpose(&layout, i, 7 - i, &layout));
    view_last(s, &layout);
}

static tsr_status copy(const scene *s)
{
    return tsr_copy(queue, at(s, 0), at(s, 1));
}

static void arrange_addition(scene *s)
{
    s->targets = 1;
    add_with_gaps(s, TSR_F32, 33, 130, 5);
    add_with_gaps(s, TSR_F32, 33, 130, 1);
}

static void arrange_many_additions(scene *s)
{
    s->targets = 1;
    add_every_second(s, TSR_F32, 6, six, 5);
    add_every_second(s, TSR_F32, 6, six, 1);
}

static tsr_status axpy(const scene *s)
{
    return tsr_axpy(queue, at(s, 0), -1, at(s, 1));
}

static tsr_status step_of_sgd(const scene *s)
{
    return tsr_sgd_step(queue, at(s, 0), at(s, 1), NULL, NULL, tsr_sgd_params(.learning_rate = 1));
}

/* CPU drivers divide k of this product among dispatches that add to y. */
static void arrange_product(scene *s)
{
    s->targets = 1;
    add_matrix(s, TSR_F32, 5, 72, 5);
    add_matrix(s, TSR_F32, 5, 4096, 1);
    add_matrix(s, TSR_F32, 72, 4096, 1);
    transpose_last(s);
}

static tsr_status product(const scene *s)
{
    return tsr_matmul(queue, at(s, 0), at(s, 1), at(s, 2), tsr_matmul_params(.accumulate = true));
}

/* The dispatch for the last range of k adds the bias to the sums of the earlier ranges in y. */
static void arrange_layer(scene *s)
{
    s->targets = 1;
    add_matrix(s, TSR_F32, 5, 72, 5);
    add_matrix(s, TSR_F32, 5, 1024, 1);
    add_matrix(s, TSR_F32, 72, 1024, 1);
    transpose_last(s);
    add_vector(s, TSR_F32, 72, 2);
}

static tsr_status layer(const scene *s)
{
    return tsr_matmul(queue, at(s, 0), at(s, 1), at(s, 2),
                      tsr_matmul_params(.bias = at(s, 3), .activation = TSR_ACT_SILU));
}

/* Strides beyond 32 bits need one dispatch per matrix. */
static void arrange_batch(scene *s)
{
    s->targets = 1;
    add(s, TSR_F32, 3, (int64_t[]){4, 3, 5}, 5);
    add(s, TSR_F32, 3, (int64_t[]){4, 3, 6}, 1);
    add(s, TSR_F32, 3, (int64_t[]){4, 6, 5}, 1);
}

static tsr_status wide_product(const scene *s)
{
    return tsr__matmul_run(
        queue, at(s, 0), at(s, 1), at(s, 2), tsr_matmul_params(.accumulate = true),
        &(tsr__matmul_override){.config = tsr__matmul_config_at(TSR__MATMUL_WIDE)});
}

/* k is divided into ranges whose sums are in scratch memory; another dispatch adds them up in y. */
static tsr_status split_product(const scene *s)
{
    return tsr__matmul_run(
        queue, at(s, 0), at(s, 1), at(s, 2), tsr_matmul_params(.accumulate = true),
        &(tsr__matmul_override){.config = tsr__matmul_config_at(TSR__MATMUL_TILED_S), .splits = 4});
}

static void arrange_vocabulary(scene *s)
{
    s->targets = 1;
    add_matrix(s, TSR_F32, 3, 20, 5);
    add_matrix(s, TSR_F32, 3, 20, 1);
    add_vector(s, TSR_I32, 3, 2);
}

static tsr_status embedding_gradient(const scene *s)
{
    return tsr__embedding_grad(queue, at(s, 0), at(s, 1), at(s, 2), 0, false);
}

/* The operation uses two pipelines, because of gaps and different dtypes. */
static void arrange_no_rows(scene *s)
{
    s->targets = 2;
    add_every_second(s, TSR_F32, 1, (int64_t[]){40}, 5);
    add_every_second(s, TSR_BF16, 1, (int64_t[]){40}, 6);
    add_matrix(s, TSR_F32, 0, 20, 0);
    add_matrix(s, TSR_F32, 0, 20, 0);
}

static tsr_status gradient_of_no_rows(const scene *s)
{
    return tsr_norm_grad(queue, NULL, at(s, 0), at(s, 1), at(s, 2), at(s, 3), NULL, TSR_NORM_LAYER,
                         1, false);
}

static void arrange_norm(scene *s)
{
    s->targets = 3;
    add_vector(s, TSR_F32, 300, 5);
    add_vector(s, TSR_F32, 300, 6);
    add_matrix(s, TSR_F32, 130, 300, 7); /* dy; dx overwrites it */
    add_matrix(s, TSR_F32, 130, 300, 2);
    add_vector(s, TSR_F32, 300, 1);
}

static tsr_status gradient_of_norm(const scene *s)
{
    return tsr_norm_grad(queue, at(s, 2), at(s, 0), at(s, 1), at(s, 3), at(s, 2), at(s, 4),
                         TSR_NORM_LAYER, 1, true);
}

static void arrange_losses(scene *s)
{
    s->targets = 2;
    add_vector(s, TSR_F32, 64, 5);
    add_matrix(s, TSR_F32, 64, 512, 6);
    add_matrix(s, TSR_F32, 64, 512, 1);
    add_vector(s, TSR_I32, 64, 3);
}

static tsr_status losses(const scene *s)
{
    return tsr_cross_entropy(queue, at(s, 0), at(s, 1), at(s, 2), at(s, 3), 1);
}

static void arrange_sum(scene *s)
{
    s->targets = 1;
    add_vector(s, TSR_F32, 1, 5);
    add_matrix(s, TSR_F32, 1, 5000, 1);
}

static tsr_status sum(const scene *s)
{
    return tsr_reduce(queue, at(s, 0), at(s, 1), 1, TSR_REDUCE_SUM, true);
}

/* CPU drivers sum whole chunks in one dispatch, the remaining elements in a second one, and the
 * results in a third one. */
static tsr_status squares(const scene *s)
{
    return tsr_sum_squares(queue, at(s, 0), (const tsr_tensor *[]){at(s, 1)}, 1, 1);
}

static void arrange_quotient(scene *s)
{
    s->targets = 2;
    add_with_gaps(s, TSR_F32, 70, 90, 5);
    add_with_gaps(s, TSR_F32, 70, 90, 6);
    add_matrix(s, TSR_F32, 70, 89, 3);
    add_matrix(s, TSR_F32, 89, 70, 2);
    transpose_last(s);
    add_matrix(s, TSR_F32, 70, 89, 1);
}

static tsr_status gradient_of_quotient(const scene *s)
{
    return tsr_binary_grad(queue, at(s, 0), at(s, 1), at(s, 2), at(s, 3), at(s, 4), TSR_BINARY_DIV);
}

static void arrange_selection(scene *s)
{
    s->targets = 1;
    add_matrix(s, TSR_F32, 4, 20, 5);
    add_matrix(s, TSR_F32, 4, 3, 1);
    add_vector(s, TSR_I32, 3, 2);
}

static tsr_status gradient_of_selection(const scene *s)
{
    return tsr_index_select_grad(queue, at(s, 0), at(s, 1), 1, at(s, 2), false);
}

enum { PACKED = 1000 };

/* One dispatch finds the largest element. Two others pack whole blocks and the rest. */
static void arrange_packing(scene *s)
{
    s->targets = 1;
    add(s, TSR_U32, 1, (int64_t[]){tsr__packed_words(PACKED)}, 7);
    add(s, TSR_F32, 1, (int64_t[]){PACKED}, 3);
}

static tsr_status pack(const scene *s)
{
    return tsr__pack(queue, at(s, 0), at(s, 1));
}

static void arrange_unpacking(scene *s)
{
    s->targets = 1;
    add(s, TSR_F32, 1, (int64_t[]){PACKED}, 3);
    add(s, TSR_U32, 1, (int64_t[]){2 * tsr__packed_words(PACKED)}, 0x3c003c00); /* 1 in f16 */
}

static tsr_status unpack(const scene *s)
{
    return tsr__unpack_sum(queue, at(s, 0), at(s, 1), 2);
}

/* The memory for posts has room for the two parts and for one of them again, but not for both
 * again, so the second pass needs what the first one has reserved. */
enum { POSTS = 2, POSTED_FLOATS = 5000 };

static void arrange_posts(scene *s)
{
    s->targets = 1;
    add(s, TSR_F32, 1, (int64_t[]){POSTS * POSTED_FLOATS}, 3);
}

typedef struct posting {
    const scene *scene;
    bool posted[POSTS]; /* in the preflight */
} posting;

/* Posts the contents of the target in two parts, each before the command that reads it. */
static tsr_status post_parts(tsr_stream *stream, void *work)
{
    posting *p = work;
    const scene *s = p->scene;
    float values[POSTED_FLOATS];
    for (int i = 0; i < POSTED_FLOATS; i++)
        values[i] = (float)i;
    for (uint64_t i = 0; i < POSTS; i++) {
        tsr__access posted;
        tsr_status status = tsr__stream_post(stream, values, sizeof values, &posted);
        if (status != TSR_OK)
            return status;
        if (stream->mode == TSR__STREAM_PREFLIGHT)
            p->posted[i] = posted.buffer != NULL;
        ck_assert_msg(p->posted[i] == (posted.buffer != NULL), "part %d is posted in one pass only",
                      (int)i);
        if (!posted.buffer) { /* the host does not reach the device's memory */
            status = tsr__stream_fill(stream, tsr__write_buffer(s->memory[0]->buffer), 1);
        } else {
            const tsr__copy_region part = {posted.begin_bytes, i * sizeof values, sizeof values};
            status =
                tsr__stream_copy(stream, posted, tsr__write_buffer(s->memory[0]->buffer), &part, 1);
        }
        if (status != TSR_OK)
            return status;
    }
    return TSR_OK;
}

/* The posts of two calls do not fit into one buffer, so every second preflight begins a new one. */
static tsr_status post(const scene *s)
{
    posting work = {.scene = s};
    return tsr__stream_atomic(queue, post_parts, &work);
}

static const operation operations[] = {
    {"fill", arrange_pieces, fill},
    {"conversion", arrange_conversion, copy},
    {"transposed conversion", arrange_transposed_conversion, copy},
    {"transpose", arrange_transpose, copy},
    {"rows", arrange_rows, copy},
    {"reversal", arrange_reversal, copy},
    {"addition", arrange_addition, axpy},
    {"many additions", arrange_many_additions, axpy},
    {"step", arrange_many_additions, step_of_sgd},
    {"product", arrange_product, product},
    {"layer", arrange_layer, layer},
    {"wide product", arrange_batch, wide_product},
    {"split product", arrange_product, split_product},
    {"embedding gradient", arrange_vocabulary, embedding_gradient},
    {"gradient of no rows", arrange_no_rows, gradient_of_no_rows},
    {"gradient of norm", arrange_norm, gradient_of_norm},
    {"losses", arrange_losses, losses},
    {"sum", arrange_sum, sum},
    {"sum of squares", arrange_sum, squares},
    {"gradient of a quotient", arrange_quotient, gradient_of_quotient},
    {"gradient of a selection", arrange_selection, gradient_of_selection},
    {"packing", arrange_packing, pack},
    {"unpacking", arrange_unpacking, unpack},
    {"posting", arrange_posts, post},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* Making calls fail ---------------------------------------------------------------------------- */

static void ignore(void *user, tsr_log_level level, const char *message)
{
    (void)user;
    (void)level;
    (void)message;
}

/* Almost fills the batch, so that it would be submitted before the operation ends. */
static void almost_fill(tsr_tensor *scratch)
{
    while (!queue->open || queue->open->operations < NEARLY_A_BATCH)
        GPU_OK(tsr_fill(queue, scratch, 0));
}

/* Uses every tensor on its own stream, with work that has not been submitted. */
static void occupy(const scene *s, tsr_stream *streams[TENSORS])
{
    const tsr__copy_region word = {0, 0, 4};
    for (int i = 0; i < s->count; i++) {
        tsr_tensor *copy = gpu_new(TSR_F32, 1, (int64_t[]){1});
        GPU_OK(tsr_stream_create(gpu, &streams[i]));
        GPU_OK(tsr__stream_copy(streams[i], tsr__read_buffer(s->memory[i]->buffer),
                                tsr__write_buffer(copy->buffer), &word, 1));
        tsr_tensor_destroy(&copy);
    }
}

/* Makes the nth event fail. Returns false if there is no such event. `done` has the contents of the
 * targets without a failure. */
static bool fail_nth(const operation *o, bool busy, tsr__fault_kind kind, uint64_t nth,
                     const contents *done)
{
    scene s = {0};
    tsr_stream *streams[TENSORS] = {NULL};
    tsr_tensor *scratch = gpu_new(TSR_F32, 1, (int64_t[]){1});
    o->arrange(&s);
    contents before = contents_of(&s);
    if (busy)
        occupy(&s, streams);
    else
        almost_fill(scratch);

    tsr__fault_arm(kind, nth, VK_ERROR_OUT_OF_HOST_MEMORY);
    tsr_status status = o->run(&s);
    const char *site = tsr__fault_site();
    tsr__fault_disarm();
    ck_assert_msg(site || status == TSR_OK, "%s: %s", o->name, tsr_last_error());

    GPU_OK(tsr_stream_wait(queue));
    contents after = contents_of(&s);
    ck_assert_msg(
        same(&after, status == TSR_OK ? done : &before),
        "%s%s: %s, event %llu, fails: %s, and the output is neither complete nor unchanged",
        busy ? "busy " : "", o->name, site ? site : "nothing", (unsigned long long)nth,
        tsr_status_name(status));
    for (int i = 0; i < s.count; i++)
        tsr_stream_destroy(&streams[i]);
    tsr_tensor_destroy(&scratch);
    clear_away(&s);
    forget(&before);
    forget(&after);
    return site != NULL;
}

static contents without_a_failure(const operation *o)
{
    scene s = {0};
    o->arrange(&s);
    contents before = contents_of(&s);
    GPU_OK(o->run(&s));
    contents done = contents_of(&s);
    ck_assert_msg(!same(&before, &done), "%s: nothing is written", o->name);
    clear_away(&s);
    forget(&before);
    return done;
}

static const tsr__fault_kind kinds[] = {TSR__FAULT_VULKAN, TSR__FAULT_ALLOC};

static void prepare(void)
{
    tsr_log_set(ignore, NULL, TSR_LOG_WARNING);
    setenv("TESSERA_VALIDATION", "0", 1); /* to save time, because devices are opened very often */
}

/* The device has no pipelines yet, and the batch is almost full. */
START_TEST(new_device)
{
    const operation *o = &operations[_i];
    const char *driver = getenv("VK_DRIVER_FILES");
    bool all = getenv("TESSERA_FAULTS_ALL") || (driver && strstr(driver, "lvp_icd"));
    gpu_setup_by_device();
    contents done = without_a_failure(o);
    gpu_teardown();
    for (int kind = 0; kind < 2; kind++) {
        bool more = true;
        /* Opening devices takes long, and the library makes almost the same calls on every driver,
         * so only every eighth event is tested. */
        for (uint64_t nth = all ? 0 : (uint64_t)_i % 8; more; nth += all ? 1 : 8) {
            gpu_setup_by_device();
            more = fail_nth(o, false, kinds[kind], nth, &done);
            gpu_teardown();
        }
    }
    forget(&done);
}
END_TEST

/* The pipelines exist already, and other streams use the tensors. */
START_TEST(busy_tensors)
{
    const operation *o = &operations[_i];
    gpu_setup_by_device();
    contents done = without_a_failure(o);
    for (int kind = 0; kind < 2; kind++) {
        uint64_t nth = 0;
        while (fail_nth(o, true, kinds[kind], nth, &done))
            nth++;
        ck_assert(nth > 0 || kinds[kind] == TSR__FAULT_ALLOC);
    }
    forget(&done);
    gpu_teardown();
}
END_TEST

TESTS(atomic)
{
    tcase_set_timeout(tests, 300);
    tcase_add_unchecked_fixture(tests, prepare, NULL);
    tcase_add_loop_test(tests, new_device, 0, OPERATIONS);
    tcase_add_loop_test(tests, busy_tensors, 0, OPERATIONS);
}
