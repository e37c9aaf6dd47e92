/* Adapters of experts, inside and as a whole, and with magnitudes (lora.h): values, passes and
 * files. */
#include <unistd.h>

#include "model/lora/lora.h"
#include "model/made.h"
#include "parallel/spmd.h"
#include "tessera/convert.h"
#include "tessera/lora.h"

#define PATH TEST_DATA "/model/families/"
enum { ROWS = 2, TOKENS = 5, WIDTH = 64, HIDDEN = ROWS * TOKENS * WIDTH, GROUPS = 3 };

/* Two ranks have 2 and 4 of the heads of latent attention. */
static tsr_model *open_model(const char *path, tsr_expert_division division)
{
    tsr_partition_params by_rates = {.struct_size = sizeof by_rates,
                                     .kind = TSR_PARTITION_WEIGHTED,
                                     .rates = (const double[]){1, 2}};
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    OK(tsr_model_file_open(path, &file));
    OK(tsr_model_open(
        file,
        tsr_model_params(.group = group, .dtype = TSR_F32, .expert_division = division,
                         .partition = ranks == 2 && strstr(path, "deepseek2") ? &by_rates : NULL),
        &model));
    tsr_model_file_close(&file);
    return model;
}

/* The stack's output for some tokens; free() it. `saved` may be NULL. Passes have the same masks
 * each time. */
static double *features(tsr_stack *stack, tsr_stack_saved **saved)
{
    double ids[ROWS * TOKENS];
    for (int i = 0; i < ROWS * TOKENS; i++)
        ids[i] = i * 37 % 500;
    tsr_tensor *x = tensor_of(TSR_I32, 2, (int64_t[]){ROWS, TOKENS}, ids), *hidden = NULL;
    stack->trained_passes = 0;
    OK(tsr_stack_forward(stack, x, NULL, saved, &hidden));
    double *out = values_of(hidden);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&hidden);
    return out;
}

static double largest_difference(const double *a, const double *b)
{
    double worst = 0;
    for (int i = 0; i < HIDDEN; i++)
        worst = fmax(worst, fabs(a[i] - b[i]));
    return worst;
}

/* Returns this rank's part of numbers for a whole parameter; free() it. */
static double *part_of(const tsr_parameter *p, const double *whole)
{
    return slice_of(whole, p->ndim, p->global_shape, p->shard_dim < 0 ? 0 : p->shard_dim,
                    p->shard_dim < 0 ? 0 : p->offset,
                    p->shard_dim < 0 ? p->global_shape[0] : p->length);
}

static int64_t part_count(const tsr_parameter *p)
{
    return tsr_layout_count(tsr_tensor_layout(p->tensor));
}

/* Gives all parameters random values, the same for any number of ranks. */
static void fill_adapter(tsr_lora *lora)
{
    for (int i = 0; i < tsr_layer_parameter_count(lora->adapter.layer); i++) {
        const tsr_parameter *p = tsr_layer_parameter(lora->adapter.layer, i);
        double *all = numbers((uint64_t)i, count_of(p->ndim, p->global_shape), TSR_F32);
        for (int64_t e = 0; e < count_of(p->ndim, p->global_shape); e++)
            all[e] *= 0.3;
        double *mine = part_of(p, all), *old = values_of(p->tensor);
        for (int64_t e = 0; p->ndim == 1 && e < part_count(p); e++) /* magnitudes */
            mine[e] = old[e] * (1 + mine[e]);
        tensor_put(p->tensor, mine);
        free(all);
        free(mine);
        free(old);
    }
}

/* The initial values of all parameters, added up with weights; they are the same on all ranks. */
static void sum_values(tsr_lora *lora, double *out)
{
    double sum = 0;
    for (int i = 0; i < tsr_layer_parameter_count(lora->adapter.layer); i++) {
        tsr_tensor *all = NULL;
        OK(tsr_layer_gather_parameter(lora->adapter.layer, i, &all));
        double *values = values_of(all);
        for (int64_t e = 0; e < tsr_layout_count(tsr_tensor_layout(all)); e++)
            sum += values[e] * number(77, e % 1000 + i);
        free(values);
        tsr_tensor_destroy(&all);
    }
    *out = sum;
}

/* Gradients ---------------------------------------------------------------------------------- */

/* The number whose gradient the passes compute. */
static double loss_of(tsr_stack *stack)
{
    tsr_stack_saved *saved = NULL;
    double *y = features(stack, &saved), sum = 0;
    for (int i = 0; i < HIDDEN; i++)
        sum += y[i] * number(500, i);
    free(y);
    tsr_stack_saved_destroy(&saved);
    return sum;
}

static void backward(tsr_stack *stack)
{
    tsr_stack_saved *saved = NULL;
    double *y = features(stack, &saved), *r = doubles(HIDDEN);
    for (int i = 0; i < HIDDEN; i++)
        r[i] = number(500, i);
    tsr_tensor *dy = tensor_of(TSR_F32, 3, (int64_t[]){ROWS, TOKENS, WIDTH}, r);
    OK(tsr_stack_backward(stack, saved, dy, NULL));
    tsr_tensor_destroy(&dy);
    tsr_stack_saved_destroy(&saved);
    free(y);
    free(r);
}

/* Σ gradient · direction over all ranks. */
static double slope_of(const tsr_parameter *p, const double *direction)
{
    double *grad = values_of(p->grad), sum = 0;
    for (int64_t e = 0; e < part_count(p); e++)
        sum += grad[e] * direction[e];
    free(grad);
    if (p->shard_dim >= 0 && ranks > 1) {
        tsr_tensor *all = tensor_of(TSR_F32, 1, (int64_t[]){1}, &sum);
        OK(tsr_group_all_reduce(group, all, TSR_OP_SUM, NULL, NULL));
        double *value = values_of(all);
        sum = *value;
        free(value);
        tsr_tensor_destroy(&all);
    }
    return sum;
}

/* Moves every GROUPS-th parameter by `factor` times a random direction of its own. Returns the
 * slope of the loss in that direction, by the gradients. */
static double move_group(tsr_lora *lora, int first, double factor)
{
    double slope = 0;
    for (int i = first; i < tsr_layer_parameter_count(lora->adapter.layer); i += GROUPS) {
        const tsr_parameter *p = tsr_layer_parameter(lora->adapter.layer, i);
        double *all = numbers(900 + (uint64_t)i, count_of(p->ndim, p->global_shape), TSR_F32),
               *direction = part_of(p, all), *values = values_of(p->tensor);
        for (int64_t e = 0; e < part_count(p); e++)
            values[e] += factor * direction[e];
        tensor_put(p->tensor, values);
        slope += slope_of(p, direction);
        free(all);
        free(direction);
        free(values);
    }
    return slope;
}

/* Compares the gradients with differences of the loss, in random directions. */
static void check_gradients(tsr_stack *stack, tsr_lora *lora)
{
    const double step = 4e-4; /* small, because the choice of experts jumps */
    double norm = 0, error = 0;
    backward(stack);
    tsr_layer_set_frozen(lora->adapter.layer, true); /* norms are those of the pass before */
    for (int g = 0; g < GROUPS; g++) {
        const double got = move_group(lora, g, step), above = loss_of(stack);
        move_group(lora, g, -2 * step);
        const double want = (above - loss_of(stack)) / (2 * step);
        move_group(lora, g, step);
        CHECK(fabs(got - want) <= 2e-2 * fabs(want) + 2e-2, "group %d: the slope is %g, not %g", g,
              got, want);
        norm += want * want;
        error += (got - want) * (got - want);
    }
    tsr_layer_set_frozen(lora->adapter.layer, false);
    CHECK(norm > 1 && error <= 1e-5 * norm, "the slopes differ by %g of their norm %g",
          sqrt(error / norm), sqrt(norm));
}

/* Files -------------------------------------------------------------------------------------- */

static const char *scratch(void)
{
    static char folder[64];
    snprintf(folder, sizeof folder, "/tmp/tessera-experts-XXXXXX");
    CHECK(my_rank != 0 || mkdtemp(folder), "no folder");
    if (ranks > 1)
        OK(tsr_comm_broadcast(world, folder, sizeof folder, TSR_U8, 0, NULL));
    return folder;
}

static void remove_all(const char *folder)
{
    static const char *const names[] = {"a",
                                        "a/adapter_config.json",
                                        "a/adapter_model.safetensors",
                                        "m/model.safetensors",
                                        "m/config.json",
                                        "m",
                                        "m.gguf",
                                        "a"};
    char path[128];
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    for (size_t i = 0; my_rank == 0 && i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    if (my_rank == 0)
        rmdir(folder);
}

/* Converts a model with an adapter, and compares the result with `want`. */
static void check_conversion(const char *model, const char *adapter, const char *to,
                             const double *want)
{
    tsr_model_file *file = NULL;
    OK(tsr_model_file_open(model, &file));
    OK(tsr_model_convert(file, to, tsr_convert_params(.adapter = adapter, .dtype = TSR_F32), NULL));
    tsr_model_file_close(&file);
    tsr_model *merged = open_model(to, TSR_EXPERT_DIVISION_INSIDE);
    double *got = features(tsr_model_stack(merged), NULL);
    CHECK(largest_difference(got, want) < 2e-4, "%s with an adapter: a feature differs by %g",
          model, largest_difference(got, want));
    free(got);
    tsr_model_close(&merged);
}

static void check_files(const char *path, tsr_stack *stack, tsr_lora **lora, tsr_lora_format format,
                        const double *want)
{
    const char *folder = scratch();
    char adapter[96], merged[96];
    snprintf(adapter, sizeof adapter, "%s/a", folder);
    snprintf(merged, sizeof merged, "%s/m", folder);
    OK(tsr_lora_save(*lora, adapter, format, NULL));
    tsr_lora_destroy(lora);
    if (ranks > 1)
        OK(tsr_comm_barrier(world, NULL));
    OK(tsr_lora_load(adapter, tsr_lora_params(.stack = stack), lora));
    double *got = features(stack, NULL);
    CHECK(largest_difference(got, want) < 2e-5, "%s: after loading, a feature differs by %g", path,
          largest_difference(got, want));
    free(got);
    if (ranks == 1)
        check_conversion(path, adapter, merged, want);
    if (ranks == 1 && strstr(path, "deepseek2")) { /* keys are columns there */
        snprintf(merged, sizeof merged, "%s/m.gguf", folder);
        check_conversion(path, adapter, merged, want);
    }
    remove_all(folder);
}

/* An adapter of a family's model. Returns a sum of initial values. */
static double check_adapter(const char *path, tsr_expert_division division,
                            const tsr_lora_params *params, tsr_lora_format format)
{
    tsr_lora_params own = *params;
    tsr_model *model = open_model(path, division);
    tsr_stack *stack = tsr_model_stack(model);
    tsr_lora *lora = NULL;
    double initial;
    double *base = features(stack, NULL);
    own.stack = stack;
    own.rank = 3;
    own.alpha = 4;
    own.seed = 5;
    own.trainable = true;
    OK(tsr_lora_create(&own, &lora));
    sum_values(lora, &initial);
    double *adapted = features(stack, NULL);
    CHECK(largest_difference(adapted, base) <= (own.dora ? 1e-5 : 0), "%s: B is not 0", path);
    free(adapted);
    fill_adapter(lora);
    check_gradients(stack, lora);
    adapted = features(stack, NULL);
    CHECK(largest_difference(adapted, base) > 0.05, "%s: the adapter changes nothing", path);
    check_files(path, stack, &lora, format, adapted);
    tsr_lora_set_enabled(lora, false);
    double *off = features(stack, NULL);
    CHECK(memcmp(off, base, HIDDEN * sizeof *off) == 0, "%s: adapter off is not the base", path);
    tsr_lora_set_enabled(lora, true);
    OK(tsr_lora_merge(lora));
    double *merged = features(stack, NULL);
    CHECK(largest_difference(merged, adapted) < 2e-4, "%s: merged, a feature differs by %g", path,
          largest_difference(merged, adapted));
    free(base);
    free(adapted);
    free(off);
    free(merged);
    tsr_lora_destroy(&lora);
    tsr_model_close(&model);
    return initial;
}

/* Sequences cannot have adapters of experts, and those that are enabled cannot stand beside them.
 */
static void check_sequences(void)
{
    tsr_model *model = open_model(PATH "qwen2moe/hf", TSR_EXPERT_DIVISION_INSIDE);
    tsr_lora *experts = NULL, *other = NULL;
    tsr_generator *g = NULL;
    const int32_t prompt = 7;
    int number, got;
    OK(tsr_lora_create(tsr_lora_params(.stack = tsr_model_stack(model), .name = "experts",
                                       .targets = TSR_LORA_EXPERTS),
                       &experts));
    OK(tsr_lora_create(tsr_lora_params(.stack = tsr_model_stack(model), .targets = TSR_LORA_Q),
                       &other));
    tsr_lora_set_enabled(other, false);
    OK(tsr_generator_create(tsr_generator_params(.model = model, .sequences = 2, .context = 16),
                            &g));
    FAILS(tsr_generator_add(g,
                            tsr_sequence_params(.prompt = &prompt, .prompt_count = 1,
                                                .max_tokens = 9, .lora = experts),
                            &number),
          TSR_ERR_INVALID,
          "generator: adapter 'experts' has some for experts, which sequences cannot have");
    OK(tsr_generator_add(
        g,
        tsr_sequence_params(.prompt = &prompt, .prompt_count = 1, .max_tokens = 9, .lora = other),
        &number));
    OK(tsr_generator_add(
        g, tsr_sequence_params(.prompt = &prompt, .prompt_count = 1, .max_tokens = 9), &number));
    OK(tsr_generator_step(g, &got)); /* the prompts */
    FAILS(
        tsr_generator_step(g, &got), TSR_ERR_INVALID,
        "stack: a pass has sequences with an adapter of their own, but that of the others changes "
        "experts");
    tsr_generator_destroy(&g);
    tsr_lora_destroy(&other);
    tsr_lora_destroy(&experts);
    tsr_model_close(&model);
}

CASE(lora_experts, "lora: adapters of whole experts, and of experts that ranks divide")
{
    const double inside = check_adapter(
                     PATH "qwen2moe/hf", TSR_EXPERT_DIVISION_INSIDE,
                     tsr_lora_params(.targets = TSR_LORA_EXPERTS, .dropout = 0.3), TSR_LORA_PEFT),
                 whole = check_adapter(PATH "qwen2moe/hf", TSR_EXPERT_DIVISION_WHOLE,
                                       tsr_lora_params(.targets = TSR_LORA_EXPERTS), TSR_LORA_GGUF);
    CHECK(inside == whole, "initial values depend on the division: %.17g and %.17g", inside, whole);
    if (ranks > 1)
        return;
    check_sequences();
    tsr_model *model = open_model(PATH "gptoss/hf", TSR_EXPERT_DIVISION_INSIDE);
    tsr_lora *lora = NULL;
    FAILS(tsr_lora_create(
              tsr_lora_params(.stack = tsr_model_stack(model), .targets = TSR_LORA_EXPERTS), &lora),
          TSR_ERR_UNSUPPORTED,
          "lora: experts of gpt_oss cannot have adapters, because its files have those of all "
          "experts in one tensor, model.layers.0.mlp.experts.gate_up_proj");
    tsr_model_close(&model);
    model = open_model(PATH "qwen2moe/hf", TSR_EXPERT_DIVISION_MIXED);
    FAILS(tsr_lora_create(
              tsr_lora_params(.stack = tsr_model_stack(model), .targets = TSR_LORA_EXPERTS), &lora),
          TSR_ERR_UNSUPPORTED,
          "moe layers.0.mlp: its experts are mixed over hosts, and cannot have adapters");
    tsr_model_close(&model);
}

enum { PROMPT = 24, GENERATED = 8 };

/* Generates tokens after a prompt that is long enough for expanded keys and values. */
static void generate(tsr_model *model, int32_t out[GENERATED])
{
    tsr_generator *g = NULL;
    int32_t prompt[PROMPT];
    int number, got;
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (i * 41 + 5) % 500;
    OK(tsr_generator_create(tsr_generator_params(.model = model, .context = 64), &g));
    OK(tsr_generator_add(
        g, tsr_sequence_params(.prompt = prompt, .prompt_count = PROMPT, .max_tokens = GENERATED),
        &number));
    for (int length = 0; length < GENERATED; length += got) {
        OK(tsr_generator_step(g, &got));
        for (int i = 0; i < got; i++)
            out[length + i] = tsr_generator_token(g, i)->token;
    }
    tsr_generator_destroy(&g);
}

/* With a cache, an adapter has the effect that it has when it is merged. */
static void check_cached(const char *path)
{
    int32_t base[GENERATED], adapted[GENERATED], merged[GENERATED];
    tsr_model *model = open_model(path, TSR_EXPERT_DIVISION_INSIDE);
    tsr_lora *lora = NULL;
    generate(model, base);
    OK(tsr_lora_create(tsr_lora_params(.stack = tsr_model_stack(model), .rank = 3,
                                       .targets = TSR_LORA_Q | TSR_LORA_K | TSR_LORA_V),
                       &lora));
    fill_adapter(lora);
    generate(model, adapted);
    OK(tsr_lora_merge(lora));
    generate(model, merged);
    CHECK(memcmp(adapted, base, sizeof base) != 0, "the adapter changes no token");
    for (int i = 0; i < GENERATED; i++)
        CHECK(adapted[i] == merged[i], "token %d is %d, but %d after merging", i, (int)adapted[i],
              (int)merged[i]);
    tsr_lora_destroy(&lora);
    tsr_model_close(&model);
}

CASE(lora_latent,
     "lora: adapters of latent attention, whose keys and values are one weight in files")
{
    const unsigned targets = TSR_LORA_Q | TSR_LORA_K | TSR_LORA_V;
    check_adapter(PATH "deepseek2/hf", TSR_EXPERT_DIVISION_INSIDE,
                  tsr_lora_params(.targets = targets, .dropout = 0.3), TSR_LORA_PEFT);
    check_cached(PATH "deepseek2/hf");
    if (ranks > 1)
        return;
    tsr_model *model = open_model(PATH "deepseek2/hf", TSR_EXPERT_DIVISION_INSIDE);
    tsr_stack *stack = tsr_model_stack(model);
    tsr_lora *lora = NULL;
    tsr_generator *g = NULL;
    const int32_t prompt = 7;
    int number;
    FAILS(tsr_lora_create(tsr_lora_params(.stack = stack, .dora = true, .targets = TSR_LORA_K),
                          &lora),
          TSR_ERR_UNSUPPORTED, "lora: adapters of latent attention cannot have magnitudes (dora)");
    OK(tsr_lora_create(tsr_lora_params(.stack = stack, .name = "l", .targets = targets), &lora));
    tsr_lora_info info = TSR_INIT(tsr_lora_info);
    OK(tsr_lora_get_info(lora, &info));
    CHECK(info.targets == targets, "the targets are 0x%x", info.targets);
    uint64_t parameters = 0; /* k_b and v_b have one A */
    for (int i = 0; i < tsr_layer_parameter_count(lora->adapter.layer); i++) {
        const tsr_parameter *p = tsr_layer_parameter(lora->adapter.layer, i);
        parameters += (uint64_t)count_of(p->ndim, p->global_shape);
    }
    CHECK(info.parameters == parameters, "%d parameters", (int)info.parameters);
    FAILS(tsr_lora_save(lora, "/tmp/nothing.gguf", TSR_LORA_GGUF, NULL), TSR_ERR_UNSUPPORTED,
          "lora: tensor blk.0.attn_k_b.weight.lora_a: GGUF adapters of the keys and values of "
          "latent attention are not supported");
    OK(tsr_generator_create(tsr_generator_params(.model = model, .context = 16), &g));
    FAILS(tsr_generator_add(g,
                            tsr_sequence_params(.prompt = &prompt, .prompt_count = 1,
                                                .max_tokens = 2, .lora = lora),
                            &number),
          TSR_ERR_INVALID,
          "generator: adapter 'l' has some for latent attention, which sequences cannot have");
    tsr_generator_destroy(&g);
    tsr_lora_destroy(&lora);
    tsr_model_close(&model);
}

/* What adapters with magnitudes cannot have. */
static void check_dora_mistakes(void)
{
    tsr_model *model = open_model(PATH "qwen2moe/hf", TSR_EXPERT_DIVISION_INSIDE);
    tsr_stack *stack = tsr_model_stack(model);
    tsr_lora *lora = NULL, *other = NULL;
    tsr_generator *g = NULL;
    const int32_t prompt = 7;
    int number;
    FAILS(tsr_lora_create(tsr_lora_params(.stack = stack, .dora = true, .dropout = 0.5), &lora),
          TSR_ERR_INVALID, "lora: with dora, dropout is 0.5; it must be 0");
    FAILS(tsr_lora_create(
              tsr_lora_params(.stack = stack, .dora = true, .targets = TSR_LORA_EXPERTS), &lora),
          TSR_ERR_UNSUPPORTED, "lora: adapters of experts cannot have magnitudes (dora)");
    OK(tsr_lora_create(
        tsr_lora_params(.stack = stack, .dora = true, .name = "d", .targets = TSR_LORA_Q), &lora));
    FAILS(tsr_lora_save(lora, "/tmp/nothing.gguf", TSR_LORA_GGUF, NULL), TSR_ERR_UNSUPPORTED,
          "lora: adapter 'd' has magnitudes (DoRA), which GGUF files cannot have");
    OK(tsr_generator_create(tsr_generator_params(.model = model, .context = 16), &g));
    FAILS(tsr_generator_add(g,
                            tsr_sequence_params(.prompt = &prompt, .prompt_count = 1,
                                                .max_tokens = 2, .lora = lora),
                            &number),
          TSR_ERR_INVALID,
          "generator: adapter 'd' has magnitudes (DoRA), which sequences cannot have");
    tsr_generator_destroy(&g);
    OK(tsr_lora_create(tsr_lora_params(.stack = stack, .targets = TSR_LORA_K), &other));
    tsr_tensor *x = tensor_of(TSR_I32, 2, (int64_t[]){1, 1}, (double[]){3}), *hidden = NULL;
    FAILS(tsr_stack_forward(stack, x, NULL, NULL, &hidden), TSR_ERR_INVALID,
          "column_linear layers.0.attention: an adapter with magnitudes (DoRA) cannot be used "
          "together with others");
    tsr_tensor_destroy(&x);
    tsr_lora_destroy(&other);
    tsr_lora_destroy(&lora);
    tsr_model_close(&model);
}

/* Rows of a transposed weight are not the rows that have magnitudes. */
static void check_transposed(void)
{
    made_model made;
    tsr_model_file *file = NULL;
    tsr_lora *lora = NULL;
    const char *folder = scratch();
    char adapter[96], merged[96];
    int family = 0;
    while (!made_families[family].transposed)
        family++;
    made_init(&made, &made_families[family], 3);
    const char *path = made_write_hf(&made);
    tsr_model *model = open_model(path, TSR_EXPERT_DIVISION_AUTO);
    OK(tsr_lora_create(
        tsr_lora_params(.stack = tsr_model_stack(model), .dora = true, .targets = TSR_LORA_O),
        &lora));
    snprintf(adapter, sizeof adapter, "%s/a", folder);
    snprintf(merged, sizeof merged, "%s/m", folder);
    OK(tsr_lora_save(lora, adapter, TSR_LORA_PEFT, NULL));
    OK(tsr_model_file_open(path, &file));
    FAILS(tsr_model_convert(file, merged, tsr_convert_params(.adapter = adapter), NULL),
          TSR_ERR_UNSUPPORTED,
          "convert: tensor transformer.h.0.attn.c_proj.weight is transposed, so an adapter with "
          "magnitudes (DoRA) cannot be merged into it");
    tsr_model_file_close(&file);
    tsr_lora_destroy(&lora);
    tsr_model_close(&model);
    made_finish(&made);
    remove_all(folder);
}

/* The norm of a row of zeros is no divisor of 0: features and gradients stay numbers. */
static void check_zero_rows(void)
{
    tsr_model *model = open_model(PATH "phi3/hf", TSR_EXPERT_DIVISION_AUTO);
    tsr_stack *stack = tsr_model_stack(model);
    tsr_layer *block = tsr_stack_block(stack, 0);
    tsr_lora *lora = NULL;
    int found = 0;
    for (int i = 0; i < tsr_layer_parameter_count(block); i++) {
        const tsr_parameter *p = tsr_layer_parameter(block, i);
        if (!strstr(p->name, "attention.o.weight"))
            continue;
        OK(tsr_fill(queue, p->tensor, 0));
        found++;
    }
    CHECK(found == 1, "phi3 has %d parameters attention.o.weight", found);
    double *base = features(stack, NULL);
    OK(tsr_lora_create(
        tsr_lora_params(.stack = stack, .dora = true, .targets = TSR_LORA_O, .trainable = true),
        &lora));
    double *adapted = features(stack, NULL);
    CHECK(largest_difference(adapted, base) <= 1e-5, "zeros with magnitudes differ by %g",
          largest_difference(adapted, base));
    backward(stack);
    for (int i = 0; i < tsr_layer_parameter_count(lora->adapter.layer); i++) {
        const tsr_parameter *p = tsr_layer_parameter(lora->adapter.layer, i);
        double *grad = values_of(p->grad);
        for (int64_t e = 0; e < part_count(p); e++)
            CHECK(isfinite(grad[e]), "%s: gradient %lld is %g", p->name, (long long)e, grad[e]);
        free(grad);
    }
    free(base);
    free(adapted);
    tsr_lora_destroy(&lora);
    tsr_model_close(&model);
}

CASE(lora_dora, "lora: adapters with magnitudes")
{
    check_adapter(
        PATH "qwen2moe/hf", TSR_EXPERT_DIVISION_INSIDE,
        tsr_lora_params(.targets = TSR_LORA_Q | TSR_LORA_K | TSR_LORA_V | TSR_LORA_O, .dora = true),
        TSR_LORA_PEFT);
    if (ranks > 1)
        return;
    /* all of q, k and v, and of gate and up, whose magnitudes are one tensor */
    check_adapter(PATH "phi3/hf", TSR_EXPERT_DIVISION_AUTO,
                  tsr_lora_params(.targets = TSR_LORA_Q | TSR_LORA_O | TSR_LORA_UP | TSR_LORA_DOWN,
                                  .dora = true),
                  TSR_LORA_PEFT);
    /* q and its gate share A, and alternate in the file */
    check_adapter(PATH "qwen35moe/hf", TSR_EXPERT_DIVISION_AUTO,
                  tsr_lora_params(.layers = "3", .dora = true), TSR_LORA_PEFT);
    check_dora_mistakes();
    check_zero_rows();
    check_transposed();
}
