/* Packed rows, masked losses, and the head's loss by chunks of tokens: compared with PyTorch
 * (tests/data/training), and for every family with each document by itself. */
#include <jansson.h>

#include "model/made.h"
#include "model/stack/stack.h"
#include "parallel/spmd.h"

enum { VOCABULARY = 40, IGNORED = -100 };

/* Files -------------------------------------------------------------------------------------- */

static json_t *read_case(const char *name)
{
    json_error_t error;
    json_t *all = json_load_file(TEST_DATA "/training/masked_loss.json", 0, &error), *found = NULL;
    CHECK(all, "masked_loss.json: %s", error.text);
    json_t *cases = json_object_get(all, "cases"), *item;
    size_t i;
    json_array_foreach(cases, i, item) if (strcmp(json_string_value(json_object_get(item, "name")),
                                                  name) == 0) found = json_incref(item);
    CHECK(found, "there is no case %s", name);
    json_decref(all);
    return found;
}

/* Copies an array of integers, or an array of such arrays. Returns their number. */
static int64_t integers(const json_t *from, int32_t *to)
{
    int64_t count = 0;
    json_t *item;
    size_t i;
    json_array_foreach((json_t *)from, i, item)
    {
        if (json_is_array(item))
            count += integers(item, to + count);
        else
            to[count++] = (int32_t)json_integer_value(item);
    }
    return count;
}

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return (int)(strchr(digits, c) - digits);
}

/* Decodes a base64 tensor of 8-byte floats. */
static void f64_tensor(const json_t *tensor, int64_t count, double *to)
{
    const char *text = json_string_value(json_object_get(tensor, "b64"));
    uint8_t *bytes = calloc((size_t)count + 1, 8);
    CHECK(bytes, "no memory");
    for (int64_t i = 0; i < 8 * count; i++) {
        const int64_t at = i / 3 * 4 + i % 3;
        bytes[i] = (uint8_t)(digit_of(text[at]) << (2 + 2 * (i % 3)) |
                             digit_of(text[at + 1]) >> (4 - 2 * (i % 3)));
    }
    memcpy(to, bytes, (size_t)count * 8);
    free(bytes);
}

typedef struct grads_file {
    uint8_t *bytes;
    json_t *header;
    const uint8_t *data;
} grads_file;

static grads_file open_grads(const char *path)
{
    grads_file file = {0};
    uint64_t length = 0;
    FILE *from = fopen(path, "rb");
    CHECK(from, "%s cannot be opened", path);
    fseek(from, 0, SEEK_END);
    const size_t size = (size_t)ftell(from);
    rewind(from);
    file.bytes = malloc(size);
    CHECK(file.bytes && fread(file.bytes, 1, size, from) == size, "%s cannot be read", path);
    fclose(from);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | file.bytes[i];
    file.header = json_loadb((const char *)file.bytes + 8, length, 0, NULL);
    CHECK(file.header, "the header of %s is no JSON", path);
    file.data = file.bytes + 8 + length;
    return file;
}

static void close_grads(grads_file *file)
{
    json_decref(file->header);
    free(file->bytes);
}

/* Gradients ---------------------------------------------------------------------------------- */

/* The gradients of a rank's parameters, one after the other. */
typedef struct gradients {
    double *value;
    int64_t count, capacity;
    const grads_file *compare; /* NULL: they are only collected */
} gradients;

/* Returns the name in the file of a parameter of a Llama model. */
static void file_name(const tsr__stack_parameter *p, char out[128])
{
    static const char *const names[][2] = {
        {"embedding.weight", "model.embed_tokens.weight"},
        {"norm.weight", "model.norm.weight"},
        {"head.weight", "lm_head.weight"},
        {"norm1.weight", "input_layernorm.weight"},
        {"norm2.weight", "post_attention_layernorm.weight"},
        {"attention.q.weight", "self_attn.q_proj.weight"},
        {"attention.k.weight", "self_attn.k_proj.weight"},
        {"attention.v.weight", "self_attn.v_proj.weight"},
        {"attention.o.weight", "self_attn.o_proj.weight"},
        {"mlp.gate.weight", "mlp.gate_proj.weight"},
        {"mlp.up.weight", "mlp.up_proj.weight"},
        {"mlp.down.weight", "mlp.down_proj.weight"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(p->ours, names[i][0]) == 0) {
            if (p->layer < 0)
                snprintf(out, 128, "%s", names[i][1]);
            else
                snprintf(out, 128, "model.layers.%d.%s", p->layer, names[i][1]);
            return;
        }
    CHECK(false, "unknown parameter %s", p->ours);
}

/* Compares a gradient with that of the file. */
static void compare_gradient(const grads_file *file, const tsr__stack_parameter *p,
                             const double *got, int64_t count)
{
    char name[128];
    const tsr_parameter *seen = p->parameter;
    file_name(p, name);
    json_t *range = json_object_get(json_object_get(file->header, name), "data_offsets");
    CHECK(range, "there is no gradient of %s", name);
    const int64_t all = count_of(seen->ndim, seen->global_shape);
    double *want = doubles(all), most = 0;
    memcpy(want, file->data + json_integer_value(json_array_get(range, 0)), (size_t)all * 8);
    for (int64_t i = 0; i < all; i++)
        most = fmax(most, fabs(want[i]));
    double *mine = slice_of(want, seen->ndim, seen->global_shape,
                            seen->shard_dim < 0 ? 0 : seen->shard_dim, seen->offset, seen->length);
    for (int64_t i = 0; i < count; i++)
        CHECK(fabs(got[i] - mine[i]) <= 2e-6 * most, "the gradient of %s [%lld] is %.9g, not %.9g",
              name, (long long)i, got[i], mine[i]);
    free(want);
    free(mine);
}

static tsr_status take_gradient(void *user, const tsr__stack_parameter *p)
{
    gradients *g = user;
    tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
    OK(tsr_fsdp_get_shard(p->sharded, p->number, &shard));
    if (!shard.grad)
        return TSR_OK;
    double *got = values_of(shard.grad);
    const int64_t count = tsr_layout_count(tsr_tensor_layout(shard.grad));
    if (g->compare)
        compare_gradient(g->compare, p, got, count);
    if (g->count + count > g->capacity) {
        g->capacity = 2 * (g->count + count);
        g->value = realloc(g->value, (size_t)g->capacity * sizeof *g->value);
        CHECK(g->value, "no memory");
    }
    memcpy(g->value + g->count, got, (size_t)count * sizeof *got);
    g->count += count;
    free(got);
    return TSR_OK;
}

/* Passes ------------------------------------------------------------------------------------- */

typedef struct batch {
    int64_t rows, tokens;
    int32_t *ids, *labels, *starts; /* starts: NULL: rows are documents */
    float *weights;                 /* NULL: 1 */
    float scale;
    int64_t chunk;
} batch;

static tsr_tensor *upload(const batch *b, tsr_dtype dtype, const void *values)
{
    tsr_tensor *out = NULL;
    if (!values)
        return NULL;
    OK(tsr_tensor_create(gpu, dtype, 2, (int64_t[]){b->rows, b->tokens}, &out));
    OK(tsr_tensor_upload(queue, out, values, (uint64_t)(b->rows * b->tokens) * 4));
    return out;
}

/* What a pass gives, in host memory; NULL: not wanted. */
typedef struct results {
    double loss;
    double *losses, *hidden, *dhidden;
} results;

/* Makes a pass; with `learn`, the backward pass too. */
static results run(tsr_stack *stack, const batch *b, bool learn)
{
    results out = {0};
    float loss;
    tsr_stack_saved *saved = NULL;
    tsr_tensor *hidden = NULL, *dhidden = NULL, *x = upload(b, TSR_I32, b->ids),
               *labels = upload(b, TSR_I32, b->labels), *weights = upload(b, TSR_F32, b->weights),
               *losses = tensor_new(TSR_F32, 2, (int64_t[]){b->rows, b->tokens}),
               *sum = tensor_new(TSR_F32, 1, (int64_t[]){1});
    OK(tsr_fill(queue, sum, 1));
    OK(tsr_stack_forward(stack, x, b->starts, learn ? &saved : NULL, &hidden));
    OK(tsr_stack_head_loss(stack, hidden,
                           tsr_head_loss_params(.labels = labels, .weights = weights,
                                                .scale = b->scale, .chunk_tokens = b->chunk,
                                                .losses = losses, .loss = sum),
                           learn ? &dhidden : NULL));
    if (learn)
        OK(tsr_stack_backward(stack, saved, dhidden, NULL));
    OK(tsr_tensor_download(queue, sum, &loss, sizeof loss));
    out.loss = (double)loss - 1; /* it is added */
    out.losses = values_of(losses);
    out.hidden = values_of(hidden);
    out.dhidden = learn ? values_of(dhidden) : NULL;
    tsr_tensor *all[] = {hidden, dhidden, x, labels, weights, losses, sum};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
    tsr_stack_saved_destroy(&saved);
    return out;
}

static void results_free(results *r)
{
    free(r->losses);
    free(r->hidden);
    free(r->dhidden);
}

static tsr_stack *open_stack(const tsr_model_file *file, tsr_group *alone, bool recompute,
                             int first, int layers)
{
    tsr_stack *stack = NULL;
    OK(tsr_stack_create(tsr_stack_params(.config = tsr_model_file_config(file), .group = group,
                                         .recompute = recompute, .first_layer = first,
                                         .layers = layers),
                        &stack));
    OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = alone)));
    OK(tsr_stack_load(stack, file));
    return stack;
}

/* PyTorch ------------------------------------------------------------------------------------ */

enum { MOST = 64 };

/* Reads one of the cases of masked_loss.json. */
static void read_batch(const char *name, batch *b, int32_t numbers_of[3][MOST], double *loss,
                       double losses[MOST])
{
    json_t *from = read_case(name), *lengths = json_object_get(from, "cu_seqlens");
    int32_t bounds[MOST];
    *b = (batch){.rows = lengths ? 1 : (int64_t)json_array_size(json_object_get(from, "ids")),
                 .ids = numbers_of[0],
                 .labels = numbers_of[1]};
    b->tokens = integers(json_object_get(from, "ids"), b->ids) / b->rows;
    integers(json_object_get(from, "targets"), b->labels);
    if (lengths) {
        b->starts = numbers_of[2];
        for (int64_t i = integers(lengths, bounds) - 1, t = b->tokens - 1; t >= 0; t--) {
            while (bounds[i] > t)
                i--;
            b->starts[t] = bounds[i];
        }
    }
    b->scale = 1 / (float)json_integer_value(json_object_get(from, "loss_tokens"));
    *loss = json_real_value(json_object_get(from, "loss"));
    f64_tensor(json_object_get(from, "token_losses"), b->rows * b->tokens, losses);
    json_decref(from);
}

/* Checks the ways `from` to `to`: plain; by chunks, with recomputation; each token by itself. */
static void check_golden(const char *name, const char *grads_path, const tsr_model_file *file,
                         tsr_group *alone, int from, int to)
{
    static int32_t numbers_of[3][MOST];
    double loss, losses[MOST];
    batch b;
    grads_file grads = open_grads(grads_path);
    read_batch(name, &b, numbers_of, &loss, losses);
    for (int how = from; how <= to; how++) {
        tsr_stack *stack = open_stack(file, alone, how == 1, 0, 0);
        b.chunk = how == 0 ? 0 : how == 1 ? 7 : 1;
        results got = run(stack, &b, true);
        CHECK(fabs(got.loss - loss) < 2e-6, "%s: the loss is %.9g, not %.9g", name, got.loss, loss);
        for (int64_t i = 0; i < b.rows * b.tokens; i++)
            CHECK(fabs(got.losses[i] - losses[i]) < 1e-5, "%s: loss %lld is %.9g, not %.9g", name,
                  (long long)i, got.losses[i], losses[i]);
        gradients all = {.compare = &grads};
        OK(tsr__stack_each(stack, take_gradient, &all));
        CHECK(all.count > 0, "%s: there are no gradients", name);
        free(all.value);
        results_free(&got);
        tsr_stack_destroy(&stack);
    }
    close_grads(&grads);
}

CASE(packed_golden, "stack: padded and packed rows have PyTorch's losses and gradients")
{
    tsr_model_file *file = NULL;
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    OK(tsr_model_file_open(TEST_DATA "/training/sft_model", &file));
    if (ranks == 1) /* several divide packed rows in the same way */
        check_golden("padded", TEST_DATA "/training/sft_padded_grads.safetensors", file, alone, 0,
                     0);
    check_golden("packed", TEST_DATA "/training/sft_packed_grads.safetensors", file, alone, 1, 2);
    tsr_model_file_close(&file);
    tsr_group_destroy(&alone);
}

/* Weights, stages ---------------------------------------------------------------------------- */

CASE(packed_weights, "stack: weights of tokens, and packed rows in two stages")
{
    static int32_t numbers_of[3][MOST];
    double loss, losses[MOST];
    float weights[MOST];
    batch b;
    tsr_model_file *file = NULL;
    tsr_group *alone = NULL;
    tsr_tensor *between = NULL, *hidden = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    OK(tsr_model_file_open(TEST_DATA "/training/sft_model", &file));
    tsr_stack *stack = open_stack(file, alone, false, 0, 0);
    read_batch("packed", &b, numbers_of, &loss, losses);
    b.chunk = 16;
    results plain = run(stack, &b, true);
    b.weights = weights;
    double want = 0;
    for (int64_t t = 0; t < b.tokens; t++) {
        weights[t] = (float)(t % 3) - 0.5F;
        want += (double)weights[t] * losses[t] * (double)b.scale;
    }
    results weighted = run(stack, &b, true);
    CHECK(fabs(weighted.loss - want) < 2e-6, "the weighted loss is %.9g, not %.9g", weighted.loss,
          want);
    const int64_t width = tsr_model_file_config(file)->width;
    for (int64_t i = 0; i < b.tokens * width; i++) {
        const double expected = (double)weights[i / width] * plain.dhidden[i];
        CHECK(fabs(weighted.dhidden[i] - expected) < 1e-7, "dhidden[%lld] is %.9g, not %.9g",
              (long long)i, weighted.dhidden[i], expected);
    }
    tsr_stack *first = open_stack(file, alone, false, 0, 1),
              *last = open_stack(file, alone, false, 1, 1);
    tsr_tensor *x = upload(&b, TSR_I32, b.ids);
    OK(tsr_stack_forward(first, x, b.starts, NULL, &between));
    OK(tsr_stack_forward(last, between, b.starts, NULL, &hidden));
    double *staged_hidden = values_of(hidden);
    CHECK(memcmp(staged_hidden, plain.hidden, (size_t)(b.tokens * width) * 8) == 0,
          "two stages have other hidden states");
    free(staged_hidden);
    results_free(&plain);
    results_free(&weighted);
    tsr_tensor *tensors[] = {between, hidden, x};
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&tensors[i]);
    tsr_stack *stacks[] = {stack, first, last};
    for (int i = 0; i < 3; i++)
        tsr_stack_destroy(&stacks[i]);
    tsr_model_file_close(&file);
    tsr_group_destroy(&alone);
}

/* Context ranks ------------------------------------------------------------------------------ */

static void select_tokens(const batch *whole, const tsr_shard_range chunks[2], const int32_t *from,
                          int32_t *to)
{
    for (int64_t row = 0; row < whole->rows; row++)
        for (int i = 0; i < 2; i++)
            for (uint64_t t = 0; t < chunks[i].count; t++)
                *to++ = from[row * whole->tokens + (int64_t)(chunks[i].start + t)];
}

/* Divides the rows of one of the cases over the ranks. */
static void check_divided(const char *name, const char *grads_path, const tsr_model_file *file,
                          tsr_group *alone, bool recompute)
{
    static int32_t numbers_of[3][MOST], own[3][MOST];
    double loss, losses[MOST], sum;
    tsr_shard_range chunks[2];
    tsr_stack *stack = NULL;
    batch b;
    grads_file grads = open_grads(grads_path);
    read_batch(name, &b, numbers_of, &loss, losses);
    OK(tsr_context_divide(b.tokens, ranks, NULL, my_rank, chunks));
    select_tokens(&b, chunks, b.ids, own[0]);
    select_tokens(&b, chunks, b.labels, own[1]);
    if (b.starts)
        select_tokens(&b, chunks, b.starts, own[2]);
    b.ids = own[0];
    b.labels = own[1];
    b.starts = b.starts ? own[2] : NULL;
    b.tokens = (int64_t)(chunks[0].count + chunks[1].count);
    OK(tsr_stack_create(tsr_stack_params(.config = tsr_model_file_config(file), .group = alone,
                                         .recompute = recompute, .context_group = group),
                        &stack));
    OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = group, .reduction = TSR_OP_SUM,
                                              .gather = (const char *const[]){"*", NULL})));
    OK(tsr_stack_load(stack, file));
    results got = run(stack, &b, true);
    sum = got.loss;
    if (world)
        OK(tsr_comm_all_reduce(world, &sum, &sum, 1, TSR_F64, TSR_OP_SUM, NULL));
    CHECK(fabs(sum - loss) < 2e-6, "%s: the loss is %.9g, not %.9g", name, sum, loss);
    gradients all = {.compare = &grads};
    OK(tsr__stack_each(stack, take_gradient, &all));
    CHECK(all.count > 0, "%s: there are no gradients", name);
    free(all.value);
    results_free(&got);
    tsr_stack_destroy(&stack);
    close_grads(&grads);
}

CASE(context_golden, "stack: rows that context ranks divide have PyTorch's losses and gradients")
{
    tsr_model_file *file = NULL;
    tsr_group *alone = NULL;
    tsr_stack *stack = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    OK(tsr_model_file_open(TEST_DATA "/training/sft_model", &file));
    check_divided("padded", TEST_DATA "/training/sft_padded_grads.safetensors", file, alone, false);
    check_divided("packed", TEST_DATA "/training/sft_packed_grads.safetensors", file, alone, true);
    tsr_model_file_close(&file);
    OK(tsr_model_file_open(TEST_DATA "/model/families/deepseek2/deepseek2-f16.gguf", &file));
    if (ranks > 1)
        FAILS(tsr_stack_create(tsr_stack_params(.config = tsr_model_file_config(file),
                                                .group = alone, .context_group = group),
                               &stack),
              TSR_ERR_UNSUPPORTED,
              "model: layer 0: it has latent attention, whose sequences a context_group cannot "
              "divide");
    tsr_model_file_close(&file);
    tsr_group_destroy(&alone);
}

/* Only the last rank has wrong starts, but no rank goes on alone. */
CASE(context_mistakes, "stack: rows that context ranks divide, with wrong starts on one rank")
{
    const int32_t zeros[] = {0, 0, 0, 0}, wrong[] = {0, -1, 0, 0};
    const batch b = {.rows = 1, .tokens = 4, .ids = (int32_t[]){1, 2, 3, 4}};
    tsr_model_file *file = NULL;
    tsr_group *alone = NULL;
    tsr_stack *stack = NULL;
    tsr_tensor *y = NULL;
    char text[160];
    if (ranks == 1) {
        case_skip("one rank");
        return;
    }
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    OK(tsr_model_file_open(TEST_DATA "/training/sft_model", &file));
    OK(tsr_stack_create(tsr_stack_params(.config = tsr_model_file_config(file), .group = alone,
                                         .context_group = group),
                        &stack));
    OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = group, .reduction = TSR_OP_SUM)));
    OK(tsr_stack_load(stack, file));
    tsr_tensor *x = upload(&b, TSR_I32, b.ids);
    if (my_rank < ranks - 1)
        snprintf(text, sizeof text, "stack: starts are wrong on rank %d of the context group",
                 ranks - 1);
    else /* the row's token is another one */
        snprintf(text, sizeof text,
                 "stack: starts[0][%d] is -1; a start from 0, that of the token before, to the "
                 "token's own index is needed",
                 (ranks - 1) * 2 + 1);
    FAILS(tsr_stack_forward(stack, x, my_rank < ranks - 1 ? zeros : wrong, NULL, &y),
          TSR_ERR_INVALID, text);
    OK(tsr_stack_forward(stack, x, zeros, NULL, &y));
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
    tsr_stack_destroy(&stack);
    tsr_model_file_close(&file);
    tsr_group_destroy(&alone);
}

/* Families ----------------------------------------------------------------------------------- */

enum { TOKENS = 9, LONG = 5 };

static void check_equal(const char *family, const char *what, const double *got, const double *want,
                        int64_t count)
{
    double most = 1e-3;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < count; i++)
        CHECK(fabs(got[i] - want[i]) <= 1e-5 * most, "%s: %s[%lld] is %.9g, not %.9g", family, what,
              (long long)i, got[i], want[i]);
}

/* Compares two documents in one row with each in a row of its own. */
static void check_family(const made_model *made, tsr_group *alone, const tsr_model_file *file)
{
    const char *family = made->family.type;
    const int64_t width = tsr_model_file_config(file)->width;
    int32_t ids[TOKENS], labels[TOKENS], starts[TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (int32_t)((number(7, t) + 1) / 2 * MADE_VOCABULARY);
        labels[t] = t % 3 == 1 ? IGNORED : (int32_t)((number(8, t) + 1) / 2 * MADE_VOCABULARY);
        starts[t] = t < LONG ? 0 : LONG;
    }
    batch b = {.rows = 1,
               .tokens = TOKENS,
               .ids = ids,
               .labels = labels,
               .starts = starts,
               .scale = 0.25F,
               .chunk = 4};
    tsr_stack *packed = open_stack(file, alone, true, 0, 0),
              *single = open_stack(file, alone, false, 0, 0);
    results together = run(packed, &b, true);
    b.starts = NULL;
    b.tokens = LONG;
    results first = run(single, &b, true);
    b.ids += LONG;
    b.labels += LONG;
    b.tokens = TOKENS - LONG;
    results second = run(single, &b, true);
    check_equal(family, "hidden", together.hidden, first.hidden, LONG * width);
    check_equal(family, "hidden", together.hidden + LONG * width, second.hidden,
                (TOKENS - LONG) * width);
    CHECK(fabs(together.loss - first.loss - second.loss) < 1e-5, "%s: other losses", family);
    gradients got = {0}, want = {0};
    OK(tsr__stack_each(packed, take_gradient, &got));
    OK(tsr__stack_each(single, take_gradient, &want));
    CHECK(got.count == want.count && got.count > 0, "%s: other gradients", family);
    check_equal(family, "gradient", got.value, want.value, got.count);
    free(got.value);
    free(want.value);
    results_free(&together);
    results_free(&first);
    results_free(&second);
    tsr_stack_destroy(&packed);
    tsr_stack_destroy(&single);
}

CASE(packed_families, "stack: documents in one row are those in rows of their own, in each family")
{
    tsr_group *alone = NULL;
    if (ranks > 1) {
        case_skip("one rank alone shows the same");
        return;
    }
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    for (int f = 0; f < made_family_count; f++) {
        made_model made;
        tsr_model_file *file = NULL;
        made_init(&made, &made_families[f], 5);
        OK(tsr_model_file_open(made_write_hf(&made), &file));
        check_family(&made, alone, file);
        tsr_model_file_close(&file);
        made_finish(&made);
    }
    tsr_group_destroy(&alone);
}

/* Mistakes ----------------------------------------------------------------------------------- */

CASE(packed_mistakes, "stack: wrong starts of documents, labels and weights")
{
    const int32_t later[] = {0, 0, 3, 3}, back[] = {0, 1, 0, 0}, negative[] = {-1, 0, 0, 0};
    tsr_model_file *file = NULL;
    tsr_group *alone = NULL;
    tsr_tensor *y = NULL, *hidden = NULL, *dhidden = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    OK(tsr_model_file_open(TEST_DATA "/training/sft_model", &file));
    tsr_stack *stack = open_stack(file, alone, false, 0, 0),
              *first = open_stack(file, alone, false, 0, 1);
    const batch b = {.rows = 1, .tokens = 4, .ids = (int32_t[]){1, 2, 3, 4}};
    tsr_tensor *x = upload(&b, TSR_I32, b.ids), *few = tensor_new(TSR_I32, 2, (int64_t[]){1, 3}),
               *reals = tensor_new(TSR_F32, 2, (int64_t[]){1, 4}),
               *one = tensor_new(TSR_F32, 1, (int64_t[]){1}),
               *halves = tensor_new(TSR_F16, 2, (int64_t[]){1, 4});
    FAILS(tsr_stack_forward(stack, x, later, NULL, &y), TSR_ERR_INVALID,
          "stack: starts[0][2] is 3; a start from 0, that of the token before, to the token's own "
          "index is needed");
    FAILS(tsr_stack_forward(stack, x, back, NULL, &y), TSR_ERR_INVALID,
          "stack: starts[0][2] is 0; a start from 1, that of the token before, to the token's own "
          "index is needed");
    FAILS(tsr_stack_forward(stack, x, negative, NULL, &y), TSR_ERR_INVALID,
          "stack: starts[0][0] is -1; a start from 0, that of the token before, to the token's own "
          "index is needed");
    OK(tsr_stack_forward(stack, x, NULL, NULL, &hidden));
#define REFUSES(text, ...)                                                                         \
    FAILS(tsr_stack_head_loss(stack, hidden, tsr_head_loss_params(__VA_ARGS__), NULL),             \
          TSR_ERR_INVALID, "stack: " text)
    REFUSES("labels is NULL", .loss = one);
    REFUSES("loss, losses and dhidden are all NULL", .labels = x);
    REFUSES("labels is [1,3]; [1,4], one number for each token, is needed", .labels = few,
            .loss = one);
    REFUSES("weights is f16; f32 is needed", .labels = x, .weights = halves, .loss = one);
    REFUSES("losses is f16; f32 is needed", .labels = x, .losses = halves);
    REFUSES("loss is f32 [1,4]; f32 [1] is needed", .labels = x, .loss = reals);
    REFUSES("chunk_tokens is -2; it must not be negative", .labels = x, .loss = one,
            .chunk_tokens = -2);
    REFUSES("scale is inf", .labels = x, .loss = one, .scale = INFINITY);
    FAILS(tsr_stack_head_loss(stack, NULL, tsr_head_loss_params(.labels = x), &dhidden),
          TSR_ERR_INVALID, "stack: hidden is NULL");
    FAILS(tsr_stack_head_loss(stack, reals, tsr_head_loss_params(.labels = x), &dhidden),
          TSR_ERR_INVALID, "stack: hidden is [1,4]; contiguous [rows, tokens, 32] is needed");
    FAILS(tsr_stack_head_loss(first, hidden, tsr_head_loss_params(.labels = x), &dhidden),
          TSR_ERR_INVALID, "stack: only the last stage has the head");
    tsr_tensor *tensors[] = {x, few, reals, one, halves, hidden};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tsr_tensor_destroy(&tensors[i]);
    tsr_stack_destroy(&stack);
    tsr_stack_destroy(&first);
    tsr_model_file_close(&file);
    tsr_group_destroy(&alone);
}
