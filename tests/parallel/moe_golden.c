/* Recorded trainings of mixtures of experts (tests/data/training): losses, norms of gradients,
 * loads of experts and biases of the choice, on any number of ranks and with both divisions. */
#include <jansson.h>

#include "parallel/spmd.h"

enum {
    STEPS = 5, /* of 100 recorded ones */
    LAYERS = 2,
    WIDTH = 64,
    HIDDEN = 32,
    EXPERTS = 8,
    USED = 2,
    VOCABULARY = 65,
    BATCH = 4,
    BLOCK = 24,
    TOKENS = BATCH * BLOCK,
    TRAIN = 1003854
};

/* Files -------------------------------------------------------------------------------------- */

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    CHECK(file, "%s cannot be opened", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size + 1);
    CHECK(bytes && fread(bytes, 1, *size, file) == *size, "%s cannot be read", path);
    fclose(file);
    return bytes;
}

typedef struct weights_file {
    uint8_t *bytes;
    json_t *header;
    const uint8_t *data;
} weights_file;

static weights_file open_weights(void)
{
    weights_file file = {0};
    size_t size;
    uint64_t length = 0;
    file.bytes = read_file(TEST_DATA "/training/moe_init.safetensors", &size);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | file.bytes[i];
    file.header = json_loadb((const char *)file.bytes + 8, length, 0, NULL);
    CHECK(file.header, "the header is no JSON");
    file.data = file.bytes + 8 + length;
    return file;
}

/* Appends a tensor's elements to `values`, and returns the place after them. */
static double *read_weight(const weights_file *file, const char *name, double *values)
{
    json_t *entry = json_object_get(file->header, name);
    CHECK(entry, "there is no %s", name);
    json_t *range = json_object_get(entry, "data_offsets");
    const int64_t begin = json_integer_value(json_array_get(range, 0)),
                  end = json_integer_value(json_array_get(range, 1));
    for (int64_t i = begin; i < end; i += 4) {
        float value;
        memcpy(&value, file->data + i, sizeof value);
        *values++ = (double)value;
    }
    return values;
}

/* The model ---------------------------------------------------------------------------------- */

typedef struct model {
    tsr_layer *embedding, *block[LAYERS], *norm, *head;
    tsr_optimizer *optimizer;
} model;

static const tsr_partition_params uneven = {.struct_size = sizeof uneven,
                                            .kind = TSR_PARTITION_UNEVEN};

static tsr_layer *make_block(const char *name, const tsr_route_params *route, bool whole)
{
    tsr_layer *block = NULL;
    OK(tsr_block_create(
        tsr_block_params(.group = group, .name = name, .size = WIDTH,
                         .norm = tsr_norm_params(.kind = TSR_NORM_RMS, .epsilon = 1e-6F),
                         .attention =
                             tsr_self_attention_params(.heads = 4, .kv_heads = 2, .head_dim = 16,
                                                       .qk_norm = TSR_QK_NORM_HEADS,
                                                       .norm_epsilon = 1e-6F, .causal = true,
                                                       .partition = &uneven,
                                                       .rope = tsr_rope_params(.rotary_dim = 16)),
                         .experts =
                             tsr_moe_params(.hidden_size = HIDDEN, .experts = EXPERTS,
                                            .experts_used = USED, .route = route,
                                            .choice_bias = route->gating == TSR_GATING_SIGMOID,
                                            .whole_experts = whole, .partition = &uneven)),
        &block));
    return block;
}

/* Sets a parameter, whose full values come from one or several tensors of the file. */
static void load(const weights_file *file, const tsr_layer *layer, const char *name, int count,
                 const char *format, int number)
{
    const tsr_parameter *parameter = NULL;
    OK(tsr_layer_find_parameter(layer, name, &parameter));
    double *values = doubles(count_of(parameter->ndim, parameter->global_shape)), *end = values;
    for (int e = 0; e < count; e++) {
        char of_file[128], *mark;
        snprintf(of_file, sizeof of_file, "%s", format);
        while ((mark = strpbrk(of_file, "#@")) != NULL)
            *mark = (char)('0' + (*mark == '#' ? number : e));
        end = read_weight(file, of_file, end);
    }
    const int dim = parameter->shard_dim < 0 ? 0 : parameter->shard_dim;
    double *mine = slice_of(values, parameter->ndim, parameter->global_shape, dim,
                            parameter->offset, parameter->length);
    tensor_put(parameter->tensor, mine);
    free(mine);
    free(values);
}

static void load_block(const weights_file *file, const tsr_layer *block, int i)
{
    static const struct {
        const char *name, *of_file;
        int count;
    } rows[] = {
        {"norm1.weight", "model.layers.#.input_layernorm.weight", 1},
        {"norm2.weight", "model.layers.#.post_attention_layernorm.weight", 1},
        {"attention.q.weight", "model.layers.#.self_attn.q_proj.weight", 1},
        {"attention.k.weight", "model.layers.#.self_attn.k_proj.weight", 1},
        {"attention.v.weight", "model.layers.#.self_attn.v_proj.weight", 1},
        {"attention.o.weight", "model.layers.#.self_attn.o_proj.weight", 1},
        {"q_norm.weight", "model.layers.#.self_attn.q_norm.weight", 1},
        {"k_norm.weight", "model.layers.#.self_attn.k_norm.weight", 1},
        {"router.weight", "model.layers.#.mlp.gate.weight", 1},
        {"experts.gate.weight", "model.layers.#.mlp.experts.@.gate_proj.weight", EXPERTS},
        {"experts.up.weight", "model.layers.#.mlp.experts.@.up_proj.weight", EXPERTS},
        {"experts.down.weight", "model.layers.#.mlp.experts.@.down_proj.weight", EXPERTS},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        load(file, block, rows[r].name, rows[r].count, rows[r].of_file, i);
}

static model make_model(const tsr_route_params *route, bool whole)
{
    model m = {0};
    OK(tsr_embedding_create(tsr_embedding_params(.group = group, .name = "embedding",
                                                 .vocabulary_size = VOCABULARY, .width = WIDTH,
                                                 .partition = &uneven),
                            &m.embedding));
    m.block[0] = make_block("block0", route, whole);
    m.block[1] = make_block("block1", route, whole);
    OK(tsr_norm_create(tsr_norm_params(.group = group, .name = "norm", .size = WIDTH,
                                       .kind = TSR_NORM_RMS, .epsilon = 1e-6F),
                       &m.norm));
    OK(tsr_column_linear_create(tsr_linear_params(.group = group, .name = "head",
                                                  .input_size = WIDTH, .output_size = VOCABULARY,
                                                  .partition = &uneven),
                                &m.head));
    weights_file file = open_weights();
    load(&file, m.embedding, "weight", 1, "model.embed_tokens.weight", 0);
    load(&file, m.norm, "weight", 1, "model.norm.weight", 0);
    load(&file, m.head, "weight", 1, "lm_head.weight", 0);
    for (int i = 0; i < LAYERS; i++)
        load_block(&file, m.block[i], i);
    json_decref(file.header);
    free(file.bytes);
    OK(tsr_optimizer_create(
        tsr_optimizer_params(.stream = queue, .decay_matrices = true,
                             .adamw = tsr_adamw_params(.beta1 = 0.9F, .beta2 = 0.99F,
                                                       .epsilon = 1e-8F, .weight_decay = 0.1F)),
        &m.optimizer));
    tsr_layer *layers[] = {m.embedding, m.block[0], m.block[1], m.norm, m.head};
    for (int i = 0; i < 5; i++)
        OK(tsr_optimizer_add_layer(m.optimizer, layers[i]));
    return m;
}

static void finish_model(model *m)
{
    tsr_optimizer_destroy(&m->optimizer);
    tsr_layer **layers[] = {&m->embedding, &m->block[0], &m->block[1], &m->norm, &m->head};
    for (int i = 0; i < 5; i++)
        tsr_layer_destroy(layers[i]);
}

/* A step ------------------------------------------------------------------------------------- */

typedef struct training {
    model model;
    char *text;
    json_t *recorded;
    double coefficient, gamma;
    double load[LAYERS][EXPERTS]; /* the choices of this step */
    double bias[LAYERS][EXPERTS]; /* for the choice, in units of gamma */
} training;

static double recorded_at(const training *t, const char *list, int step)
{
    json_t *all = json_object_get(t->recorded, list);
    CHECK(all, "there is no %s", list);
    return json_number_value(json_array_get(all, (size_t)step));
}

/* Reads the windows of a step: x [BATCH,BLOCK], and the labels [TOKENS]. */
static void windows(const training *t, int step, tsr_tensor **x, tsr_tensor **labels)
{
    static int32_t number[256];
    static bool is_known;
    for (int c = 0, next = 0; c < 256 && !is_known; c++)
        number[c] = memchr(t->text, c, TRAIN + 100000) ? next++ : -1;
    is_known = true;
    double in[TOKENS], out[TOKENS];
    json_t *offsets = json_array_get(json_object_get(t->recorded, "offsets"), (size_t)step);
    for (int i = 0; i < TOKENS; i++) {
        const int64_t at =
            json_integer_value(json_array_get(offsets, (size_t)(i / BLOCK))) + i % BLOCK;
        in[i] = (double)number[(uint8_t)t->text[at]];
        out[i] = (double)number[(uint8_t)t->text[at + 1]];
    }
    *x = tensor_of(TSR_I32, 2, (int64_t[]){BATCH, BLOCK}, in);
    *labels = tensor_of(TSR_I32, 1, (int64_t[]){TOKENS}, out);
}

/* Counts the choices of a layer, and returns Σ over its tokens of the softmax probabilities. */
static void read_choice(training *t, int layer, const tsr_layer_saved *saved, double *sums)
{
    tsr_moe_choice choice = TSR_INIT(tsr_moe_choice);
    OK(tsr_moe_get_choice(saved, &choice));
    double *ids = values_of(choice.ids), *logits = values_of(choice.logits);
    memset(t->load[layer], 0, sizeof t->load[layer]);
    for (int i = 0; i < TOKENS * USED; i++)
        t->load[layer][(int)ids[i]]++;
    for (int i = 0; i < TOKENS; i++) {
        double total = 0;
        for (int e = 0; e < EXPERTS; e++)
            total += exp(logits[i * EXPERTS + e]);
        for (int e = 0; e < EXPERTS; e++)
            sums[e] += exp(logits[i * EXPERTS + e]) / total;
    }
    free(ids);
    free(logits);
}

/* Computes the auxiliary loss over the tokens of all layers, and sets its gradient. */
static double balance(training *t, tsr_layer_saved *const *saved)
{
    double sums[EXPERTS] = {0}, gradient[EXPERTS], aux = 0;
    for (int l = 0; l < LAYERS; l++)
        read_choice(t, l, saved[l], sums);
    for (int e = 0; e < EXPERTS; e++) {
        const double share = (t->load[0][e] + t->load[1][e]) / (LAYERS * TOKENS);
        aux += EXPERTS * share * sums[e] / (LAYERS * TOKENS);
        gradient[e] = t->coefficient * EXPERTS * share / (LAYERS * TOKENS);
    }
    const int64_t experts = EXPERTS;
    tsr_tensor *of_probabilities = tensor_of(TSR_F32, 1, &experts, gradient);
    for (int l = 0; l < LAYERS && t->coefficient > 0; l++)
        OK(tsr_moe_set_balance(t->model.block[l], of_probabilities));
    tsr_tensor_destroy(&of_probabilities);
    return aux;
}

/* Moves the biases for the choice towards equal loads, as DeepSeek-V3 does. */
static void move_biases(training *t)
{
    for (int l = 0; l < LAYERS && t->gamma > 0; l++) {
        double values[EXPERTS];
        const tsr_parameter *bias = NULL;
        OK(tsr_layer_find_parameter(t->model.block[l], "choice_bias", &bias));
        for (int e = 0; e < EXPERTS; e++) {
            const double mean = (double)TOKENS * USED / EXPERTS, load = t->load[l][e];
            t->bias[l][e] += load < mean ? 1 : load > mean ? -1 : 0;
            values[e] = t->bias[l][e] * t->gamma;
        }
        tensor_put(bias->tensor, values);
    }
}

static double loss_and_gradients(training *t, int step, double *aux)
{
    model *m = &t->model;
    tsr_tensor *x, *labels, *h[LAYERS + 3] = {0}, *logits = NULL, *flat = NULL,
                                        *d[LAYERS + 3] = {0};
    tsr_layer_saved *embedded = NULL, *blocks[LAYERS] = {0}, *normed = NULL, *head = NULL;
    windows(t, step, &x, &labels);
    OK(tsr_layer_forward(m->embedding, x, &embedded, &h[0]));
    for (int l = 0; l < LAYERS; l++)
        OK(tsr_layer_forward(m->block[l], h[l], &blocks[l], &h[l + 1]));
    OK(tsr_layer_forward(m->norm, h[LAYERS], &normed, &h[LAYERS + 1]));
    OK(tsr_layer_forward(m->head, h[LAYERS + 1], &head, &logits));
    *aux = balance(t, blocks);
    const int64_t classes = tsr_tensor_layout(logits)->shape[2];
    tsr_tensor *losses = tensor_new(TSR_F32, 1, (int64_t[]){TOKENS}),
               *dlogits = tensor_new(TSR_F32, 2, (int64_t[]){TOKENS, classes}), *shaped = NULL;
    OK(tsr_tensor_reshape(logits, 2, (int64_t[]){TOKENS, classes}, &flat));
    OK(tsr_vocabulary_cross_entropy(group, losses, dlogits, flat, labels, VOCABULARY, &uneven,
                                    1.0F / TOKENS));
    OK(tsr_tensor_reshape(dlogits, 3, (int64_t[]){BATCH, BLOCK, classes}, &shaped));
    OK(tsr_layer_backward(m->head, head, shaped, &d[0]));
    OK(tsr_layer_backward(m->norm, normed, d[0], &d[1]));
    for (int l = 0; l < LAYERS; l++)
        OK(tsr_layer_backward(m->block[LAYERS - 1 - l], blocks[LAYERS - 1 - l], d[l + 1],
                              &d[l + 2]));
    OK(tsr_layer_backward(m->embedding, embedded, d[LAYERS + 1], NULL));
    double *each = values_of(losses), loss = 0;
    for (int i = 0; i < TOKENS; i++)
        loss += each[i] / TOKENS;
    free(each);
    tsr_tensor *all[] = {x, labels, logits, flat, losses, dlogits, shaped};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tsr_tensor_destroy(&all[i]);
    for (int i = 0; i < LAYERS + 3; i++) {
        tsr_tensor_destroy(&h[i]);
        tsr_tensor_destroy(&d[i]);
    }
    tsr_layer_saved *saved[] = {embedded, blocks[0], blocks[1], normed, head};
    for (size_t i = 0; i < sizeof saved / sizeof saved[0]; i++)
        tsr_layer_saved_destroy(&saved[i]);
    return loss;
}

static void check_relative(const char *what, int step, double got, double want, double tolerance)
{
    CHECK(fabs(got - want) <= tolerance * fabs(want), "step %d: %s is %.9g, not %.9g", step, what,
          got, want);
}

static void check_loads(const training *t, int step)
{
    json_t *layers =
        json_array_get(json_object_get(t->recorded, "tokens_per_expert"), (size_t)step);
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t e = 0; e < EXPERTS; e++) {
            const double want = json_number_value(json_array_get(json_array_get(layers, l), e));
            CHECK(t->load[l][e] == want, "step %d: expert %d of layer %d has %g tokens, not %g",
                  step, (int)e, (int)l, t->load[l][e], want);
        }
}

static void run_training(const char *name, bool whole)
{
    char path[512];
    size_t size;
    json_error_t error;
    snprintf(path, sizeof path, "%s/training/moe_%s_trajectory.json", TEST_DATA, name);
    training t = {.recorded = json_load_file(path, 0, &error)};
    CHECK(t.recorded, "%s: %s", path, error.text);
    t.text = (char *)read_file(TEST_TEXT, &size);
    json_t *moe = json_object_get(t.recorded, "moe");
    t.coefficient = json_number_value(json_object_get(moe, "aux_coef"));
    t.gamma = json_number_value(json_object_get(moe, "gamma"));
    const bool sigmoid = strcmp(json_string_value(json_object_get(moe, "routing")), "sigmoid") == 0;
    const tsr_route_params route = {
        .struct_size = sizeof route,
        .gating = sigmoid ? TSR_GATING_SIGMOID : TSR_GATING_SOFTMAX,
        .normalise = true,
        .epsilon = sigmoid ? 1e-20F : 0,
        .scale = (float)json_number_value(json_object_get(moe, "route_scale"))};
    t.model = make_model(&route, whole);
    for (int step = 0; step < STEPS; step++) {
        double norm = 0, aux = 0;
        const double loss = loss_and_gradients(&t, step, &aux);
        OK(tsr_optimizer_clip(t.model.optimizer, 1, NULL, &norm));
        check_relative("the loss", step, loss, recorded_at(&t, "loss_f64", step), 1e-5);
        check_relative("the norm", step, norm, recorded_at(&t, "grad_norm_f64", step), 1e-4);
        if (json_object_get(t.recorded, "aux_f64"))
            check_relative("aux", step, aux, recorded_at(&t, "aux_f64", step), 1e-5);
        check_loads(&t, step);
        OK(tsr_optimizer_step(t.model.optimizer, (float)recorded_at(&t, "lr_used", step)));
        OK(tsr_optimizer_zero_grad(t.model.optimizer));
        move_biases(&t);
    }
    finish_model(&t.model);
    json_decref(t.recorded);
    free(t.text);
}

CASE(moe_golden_softmax, "experts: a recorded training")
{
    run_training("softmax", false);
}

CASE(moe_golden_aux, "experts: a recorded training with an auxiliary loss")
{
    run_training("aux", true);
}

CASE(moe_golden_bias, "experts: a recorded training with biases for the choice")
{
    run_training("sigmoid_bias", false);
}
