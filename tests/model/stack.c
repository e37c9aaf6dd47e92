/* Tests stacks: the layers of models of every family, with sharded parameters that are read from
 * files, saved, and divided over stages. examples/test compares trainings with recorded ones. */
#include "tessera/stack.h"

#include <unistd.h>

#include "base/fault.h"
#include "model/made.h"
#include "model/open.h"
#include "model/stack/stack.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/spmd.h"

enum { ROWS = 2, TOKENS = 9, SEED = 5, LOGITS = ROWS * TOKENS * MADE_VOCABULARY };

static void make_ids(int32_t ids[ROWS * TOKENS])
{
    for (int i = 0; i < ROWS * TOKENS; i++)
        ids[i] = (int32_t)((number(7, i) + 1) / 2 * MADE_VOCABULARY);
}

/* Creates a stack of layers first … first + layers − 1, with its parameters on this rank's data
 * group `alone`. */
static tsr_stack_info info_of(const tsr_stack *stack)
{
    tsr_stack_info info = TSR_INIT(tsr_stack_info);
    OK(tsr_stack_get_info(stack, &info));
    return info;
}

static tsr_stack *create_stack(const tsr_model_config *config, tsr_group *alone, int first,
                               int layers)
{
    static const char *const everything[] = {"*", NULL};
    tsr_stack *stack = NULL;
    OK(tsr_stack_create(tsr_stack_params(.config = config, .group = group, .first_layer = first,
                                         .layers = layers, .seed = SEED),
                        &stack));
    OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = alone, .gather = everything)));
    return stack;
}

static tsr_tensor *upload_ids(void)
{
    int32_t ids[ROWS * TOKENS];
    tsr_tensor *x = NULL;
    make_ids(ids);
    OK(tsr_tensor_create(gpu, TSR_I32, 2, (int64_t[]){ROWS, TOKENS}, &x));
    OK(tsr_tensor_upload(queue, x, ids, sizeof ids));
    return x;
}

static void logits_of(tsr_stack *stack, const tsr_tensor *hidden, float logits[LOGITS])
{
    tsr_tensor *own = NULL;
    OK(tsr_stack_head_forward(stack, hidden, NULL, &own));
    OK(tsr_stack_gather_logits(stack, own, logits));
    tsr_tensor_destroy(&own);
}

static void compute(tsr_stack *stack, float logits[LOGITS])
{
    tsr_tensor *x = upload_ids(), *hidden = NULL;
    OK(tsr_stack_forward(stack, x, NULL, NULL, &hidden));
    logits_of(stack, hidden, logits);
    tsr_tensor_destroy(&hidden);
    tsr_tensor_destroy(&x);
}

static void check_logits(made_model *made, const float *got, const char *what)
{
    int32_t ids[ROWS * TOKENS];
    static double want[TOKENS * MADE_VOCABULARY];
    double worst = 0;
    make_ids(ids);
    for (int row = 0; row < ROWS; row++) {
        made_logits(made, TOKENS, ids + row * TOKENS, want);
        for (int i = 0; i < TOKENS * MADE_VOCABULARY; i++)
            worst = fmax(worst, fabs((double)got[row * TOKENS * MADE_VOCABULARY + i] - want[i]));
    }
    CHECK(worst < 1e-4, "%s, %s: a logit differs by %g", made->family.type, what, worst);
}

/* Compares a stack that has read a model's files with the model in double precision. Saves it, and
 * compares a stack that has read that. */
static void check_files(made_model *made, const char *path, tsr_group *alone)
{
    static float read[LOGITS], again[LOGITS];
    char saved[128];
    tsr_model_file *file = NULL, *written = NULL;
    OK(tsr_model_file_open(path, &file));
    const tsr_model_config *config = tsr_model_file_config(file);
    tsr_stack *stack = create_stack(config, alone, 0, 0);
    OK(tsr_stack_load(stack, file));
    compute(stack, read);
    check_logits(made, read, "from files");
    snprintf(saved, sizeof saved, "%s/saved.safetensors", made->folder);
    if (ranks > 1) /* all ranks read the file of rank 0 */
        OK(tsr_comm_broadcast(tsr_group_comm(group), saved, sizeof saved, TSR_U8, 0, NULL));
    OK(tsr_stack_save(stack, saved, NULL));
    if (ranks > 1)
        OK(tsr_comm_barrier(tsr_group_comm(group), NULL));
    OK(tsr_model_file_open(saved, &written));
    flat_config before, after;
    flatten(config, &before);
    flatten(tsr_model_file_config(written), &after);
    CHECK(strcmp(before.architecture, after.architecture) == 0 && before.tied == after.tied &&
              before.context == after.context && before.window == after.window,
          "%s: the saved configuration differs", made->family.type);
    tsr_stack *other = create_stack(tsr_model_file_config(written), alone, 0, 0);
    OK(tsr_stack_load(other, written));
    compute(other, again);
    CHECK(memcmp(read, again, sizeof read) == 0, "%s: the saved model has other logits",
          made->family.type);
    if (ranks > 1)
        OK(tsr_comm_barrier(tsr_group_comm(group), NULL));
    tsr_stack_destroy(&other);
    tsr_stack_destroy(&stack);
    tsr_model_file_close(&written);
    tsr_model_file_close(&file);
}

CASE(stack_files, "stack: Hugging Face folders, read, saved and read again")
{
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    for (int f = 0; f < made_family_count; f++) {
        made_model made;
        made_init(&made, &made_families[f], SEED + (uint64_t)f);
        check_files(&made, made_write_hf(&made), alone);
        made_finish(&made);
    }
    tsr_group_destroy(&alone);
}

CASE(stack_gguf, "stack: GGUF files, whose rows of q and k are in another order")
{
    static float logits[LOGITS];
    tsr_group *alone = NULL;
    made_family family = made_families[0];
    made_model made;
    tsr_model_file *file = NULL;
    family.scaling = MADE_NONE;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    made_init(&made, &family, SEED);
    const char *path = made_write_gguf(&made, 1);
    OK(tsr_model_file_open(path, &file));
    tsr_stack *stack = create_stack(tsr_model_file_config(file), alone, 0, 0);
    OK(tsr_stack_load(stack, file));
    compute(stack, logits);
    check_logits(&made, logits, "from GGUF");
    tsr_stack_destroy(&stack);
    tsr_model_file_close(&file);
    made_finish(&made);
    tsr_group_destroy(&alone);
}

CASE(stack_stages, "stack: two stages compute what one computes, and start with the same weights")
{
    static float whole[LOGITS], divided[LOGITS];
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    for (int f = 0; f < made_family_count; f++) {
        made_model made;
        tsr_model_file *file = NULL;
        tsr_tensor *x = upload_ids(), *between = NULL, *hidden = NULL;
        made_init(&made, &made_families[f], SEED);
        OK(tsr_model_file_open(made_write_hf(&made), &file));
        const tsr_model_config *config = tsr_model_file_config(file);
        tsr_stack *one = create_stack(config, alone, 0, 0),
                  *first = create_stack(config, alone, 0, 1),
                  *last = create_stack(config, alone, 1, 0);
        const tsr_stack_info info = info_of(one), first_info = info_of(first),
                             last_info = info_of(last);
        CHECK(info.blocks == 2 && last_info.blocks == 1 && tsr_stack_block(last, 0) &&
                  !tsr_stack_block(last, 1),
              "%d and %d blocks", info.blocks, last_info.blocks);
        CHECK((last_info.counted_elsewhere != NULL) == config->tied &&
                  !first_info.counted_elsewhere,
              "%s: parameters that are counted elsewhere", made.family.type);
        compute(one, whole);
        OK(tsr_stack_forward(first, x, NULL, NULL, &between));
        OK(tsr_stack_forward(last, between, NULL, NULL, &hidden));
        logits_of(last, hidden, divided);
        CHECK(memcmp(whole, divided, sizeof whole) == 0, "%s: stages have other logits",
              made.family.type);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&between);
        tsr_tensor_destroy(&hidden);
        tsr_stack_destroy(&one);
        tsr_stack_destroy(&first);
        tsr_stack_destroy(&last);
        tsr_model_file_close(&file);
        made_finish(&made);
    }
    tsr_group_destroy(&alone);
}

/* Weights of files that were opened for another configuration are refused with both values, and
 * leave the stack as it is. */
static void check_other_files(tsr_stack *stack, const char *path)
{
    tsr_model_file *file = NULL, *other = NULL;
    OK(tsr_model_file_open(path, &file));
    tsr_model_config config = *tsr_model_file_config(file);
    tsr_model_layer layer = *config.kinds[0];
    const tsr_model_layer *kinds[] = {&layer};
    const double epsilon = config.norm_epsilon;
    char text[160];
    config.norm_epsilon = 2 * epsilon;
    OK(tsr_model_file_open_weights(path, &config, &other));
    snprintf(text, sizeof text, "stack: the norms' epsilon is %g, but %g for the model's files",
             epsilon, 2 * epsilon);
    FAILS(tsr_stack_load(stack, other), TSR_ERR_INVALID, text);
    tsr_model_file_close(&other);
    /* Heads of half the size have the same tensors. */
    config.norm_epsilon = epsilon;
    CHECK(config.kind_count == 1, "%d kinds of layers", config.kind_count);
    config.kinds = kinds;
    snprintf(text, sizeof text,
             "stack: the number of heads is %lld, but %lld for the model's files",
             (long long)layer.heads, (long long)layer.heads * 2);
    layer.heads *= 2;
    layer.kv_heads *= 2;
    layer.head_dim /= 2;
    layer.value_dim /= 2;
    layer.rope = NULL;
    OK(tsr_model_file_open_weights(path, &config, &other));
    FAILS(tsr_stack_load(stack, other), TSR_ERR_INVALID, text);
    tsr_model_file_close(&other);
    tsr_model_file_close(&file);
}

CASE(stack_refused, "stack: mistakes")
{
    made_model made;
    tsr_model_file *file = NULL, *other = NULL;
    tsr_stack *stack = NULL;
    tsr_group *alone = NULL;
    tsr_tensor *x = upload_ids(), *y = NULL;
    made_init(&made, &made_families[0], SEED);
    const char *path = made_write_hf(&made);
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    OK(tsr_model_file_open(path, &file));
    const tsr_model_config *config = tsr_model_file_config(file);
    FAILS(tsr_stack_create(NULL, &stack), TSR_ERR_INVALID, "stack: params is NULL");
    FAILS(tsr_stack_create(tsr_stack_params(.group = group), &stack), TSR_ERR_INVALID,
          "stack: config is NULL");
    FAILS(tsr_stack_create(
              tsr_stack_params(.config = config, .group = group, .first_layer = 1, .layers = 2),
              &stack),
          TSR_ERR_INVALID, "stack: 2 layers from layer 1 on; the model has layers 0 to 1");
    FAILS(tsr_stack_create(tsr_stack_params(.config = config, .group = group, .dtype = TSR_Q8_0),
                           &stack),
          TSR_ERR_INVALID, "stack: dtype is q8_0; f32, f16 and bf16 are possible");
    FAILS(tsr_stack_create(tsr_stack_params(.config = config, .group = group, .deviation = -1),
                           &stack),
          TSR_ERR_INVALID, "stack: deviation is -1; a number above 0 and up to 1e6 is possible");
    tsr_model_layer kind = *config->kinds[0];
    tsr_model_config untrained = *config;
    kind.keys_as_values = true;
    untrained.kinds = (const tsr_model_layer *const[]){config->kinds[0], &kind};
    untrained.kind_count = 2;
    untrained.layer_kinds = (const uint16_t[]){0, 1};
    FAILS(tsr_stack_create(tsr_stack_params(.config = &untrained, .group = group), &stack),
          TSR_ERR_UNSUPPORTED,
          "stack: models of architecture llama cannot be trained: there is no backward pass of "
          "values that are keys without a norm");
    CHECK(!stack, "there is a stack");
    OK(tsr_stack_create(tsr_stack_params(.config = config, .group = group), &stack));
    FAILS(tsr_stack_load(stack, file), TSR_ERR_INVALID, "stack: the parameters are not sharded");
    FAILS(tsr_stack_save(stack, path, NULL), TSR_ERR_INVALID,
          "stack: the parameters are not sharded");
    OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = alone)));
    FAILS(tsr_stack_shard(stack, tsr_fsdp_params(.group = alone)), TSR_ERR_INVALID,
          "stack: the parameters are sharded already");
    FAILS(tsr_stack_load(stack, NULL), TSR_ERR_INVALID, "stack: file is NULL");
    check_other_files(stack, path);
    FAILS(tsr_model_file_open_weights(NULL, config, &other), TSR_ERR_INVALID,
          "model: path is NULL");
    FAILS(tsr_model_file_open_weights(path, NULL, &other), TSR_ERR_INVALID,
          "model: config is NULL");
    FAILS(tsr_model_file_open_weights("/proc/nowhere", config, &other), TSR_ERR_NOT_FOUND,
          "model: cannot open /proc/nowhere: No such file or directory");
    FAILS(tsr_stack_forward(stack, NULL, NULL, NULL, &y), TSR_ERR_INVALID, "stack: x is NULL");
    made_remove(&made, "norm.weight");
    const tsr_status missing = tsr_model_file_open_weights(made_write_hf(&made), config, &other);
    CHECK(missing == TSR_ERR_NOT_FOUND && !other &&
              strstr(tsr_last_error(), "has no tensor model.norm.weight"),
          "%s: %s", tsr_status_name(missing), tsr_last_error());
    tsr_model_file *broken = NULL;
    OK(tsr_model_file_open(made.folder, &broken));
    const tsr_status unread = tsr_stack_load(stack, broken);
    CHECK(unread == TSR_ERR_NOT_FOUND &&
              strstr(tsr_last_error(), "has no tensor model.norm.weight"),
          "%s: %s", tsr_status_name(unread), tsr_last_error());
    tsr_model_file_close(&broken);
    tsr_stack_destroy(&stack);
    tsr_tensor_destroy(&x);
    tsr_model_file_close(&file);
    made_finish(&made);
    tsr_group_destroy(&alone);
}

/* Experts ------------------------------------------------------------------------------------ */

enum { EXPERTS = 4, USED = 2 };

static tsr_stack *create_experts(bool biased, bool recompute)
{
    const tsr_model_experts experts = {.struct_size = sizeof experts,
                                       .count = EXPERTS,
                                       .used = USED,
                                       .hidden = 24,
                                       .gating = biased ? TSR_GATING_SIGMOID : TSR_GATING_SOFTMAX,
                                       .normalise = true,
                                       .choice_bias = biased};
    const tsr_rope_params rope = {.struct_size = sizeof rope, .rotary_dim = 8};
    const tsr_model_layer layer = {.struct_size = sizeof layer,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 8,
                                   .rope = &rope,
                                   .gated = true,
                                   .activation = TSR_ACT_SILU,
                                   .qk_norm = TSR_QK_NORM_HEADS,
                                   .experts = &experts};
    const tsr_model_config config = {.struct_size = sizeof config,
                                     .architecture = biased ? "glm4_moe" : "qwen3_moe",
                                     .layers = 2,
                                     .width = 32,
                                     .vocabulary = MADE_VOCABULARY,
                                     .context = TOKENS,
                                     .norm_epsilon = 1e-5,
                                     .norm = TSR_NORM_RMS,
                                     .bos = -1,
                                     .kind_count = 1,
                                     .kinds = (const tsr_model_layer *const[]){&layer}};
    tsr_stack *stack = NULL;
    OK(tsr_stack_create(
        tsr_stack_params(.config = &config, .group = group, .seed = SEED, .recompute = recompute),
        &stack));
    return stack;
}

/* Gets what both blocks choose: ids[block][token · USED + rank]. */
static void choices_of(tsr_stack *stack, int32_t ids[2][ROWS * TOKENS * USED])
{
    tsr_stack_saved *saved = NULL;
    tsr_moe_choice choice = TSR_INIT(tsr_moe_choice);
    tsr_tensor *x = upload_ids(), *y = NULL;
    OK(tsr_stack_forward(stack, x, NULL, &saved, &y));
    for (int b = 0; b < 2; b++) {
        OK(tsr_stack_get_choice(saved, b, &choice));
        OK(tsr_tensor_download(queue, choice.ids, ids[b], sizeof ids[b]));
    }
    FAILS(tsr_stack_get_choice(saved, 2, &choice), TSR_ERR_INVALID,
          "stack: block 2; the stage has 2");
    tsr_stack_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}

CASE(stack_experts, "stack: choices of experts, also of blocks that recompute, and their biases")
{
    static int32_t ids[3][2][ROWS * TOKENS * USED];
    const float one[EXPERTS] = {0, 0, 0, 2}, *changes[] = {one, NULL};
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    for (int i = 0; i < 2; i++) {
        tsr_stack *stack = create_experts(true, i == 1);
        FAILS(tsr_stack_add_choice_biases(stack, changes), TSR_ERR_INVALID,
              "stack: the parameters are not sharded");
        OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = alone)));
        choices_of(stack, ids[i]);
        /* Sigmoids are at most 1, so that the first block then chooses the last expert first. */
        OK(tsr_stack_add_choice_biases(stack, changes));
        choices_of(stack, ids[2]);
        for (int t = 0; t < ROWS * TOKENS; t++)
            CHECK(ids[2][0][t * USED] == EXPERTS - 1, "token %d first chose expert %d", t,
                  ids[2][0][t * USED]);
        tsr_stack_destroy(&stack);
    }
    CHECK(memcmp(ids[0], ids[1], sizeof ids[0]) == 0, "recomputation changes the choice");
    tsr_stack *stack = create_experts(false, false);
    OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = alone)));
    FAILS(tsr_stack_add_choice_biases(stack, changes), TSR_ERR_INVALID,
          "stack: block 0 has no bias for the choice of experts");
    tsr_stack_destroy(&stack);
    tsr_group_destroy(&alone);
}

CASE(tied_head_only, "stack: files whose tied matrix has the head's name only")
{
    static float logits[LOGITS];
    made_model made;
    tsr_model_file *file = NULL;
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    for (int f = 0; f < made_family_count; f++) {
        if (!made_families[f].tied)
            continue;
        made_init(&made, &made_families[f], SEED);
        made_tensor *embedding =
            made_find(&made, made.family.learned_positions ? "wte.weight" : "embed_tokens.weight");
        CHECK(embedding, "there is no embedding");
        snprintf(embedding->name, sizeof embedding->name, "lm_head.weight");
        const char *path = made_write_hf(&made);
        OK(tsr_model_file_open(path, &file));
        tsr_stack *stack = create_stack(tsr_model_file_config(file), alone, 0, 0);
        OK(tsr_stack_load(stack, file));
        compute(stack, logits);
        snprintf(embedding->name, sizeof embedding->name, "%s",
                 made.family.learned_positions ? "wte.weight" : "embed_tokens.weight");
        check_logits(&made, logits, "with lm_head.weight only");
        tsr_stack_destroy(&stack);
        tsr_model_file_close(&file);
        made_finish(&made);
    }
    tsr_group_destroy(&alone);
}

/* Makes, reads and saves a stack while the nth allocation fails. Returns whether there was such an
 * allocation. */
static bool fails_at(const tsr_model_config *config, const char *path, const char *saved,
                     tsr_group *alone, const tsr_tensor *x, uint64_t nth)
{
    tsr_model_file *file = NULL;
    tsr_stack *stack = NULL;
    tsr_stack_saved *kept = NULL;
    tsr_tensor *y = NULL;
    tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
    tsr_status status =
        tsr_stack_create(tsr_stack_params(.config = config, .group = group), &stack);
    if (status == TSR_OK)
        status = tsr_stack_shard(stack, tsr_fsdp_params(.group = alone));
    if (status == TSR_OK)
        status = tsr_model_file_open_weights(path, config, &file);
    if (status == TSR_OK)
        status = tsr_stack_load(stack, file);
    if (status == TSR_OK)
        status = tsr_stack_forward(stack, x, NULL, &kept, &y);
    if (status == TSR_OK)
        status = tsr_stack_save(stack, saved, NULL);
    const bool reached = tsr__fault_site() != NULL;
    tsr__fault_disarm();
    CHECK(reached || status == TSR_OK, "%s", tsr_last_error());
    /* What has failed can be repeated, and nothing of the first attempt is left over. */
    if (stack && status != TSR_OK) {
        const tsr_status again = tsr_stack_shard(stack, tsr_fsdp_params(.group = alone));
        CHECK(again == TSR_OK || strstr(tsr_last_error(), "sharded already"), "%s",
              tsr_last_error());
    }
    tsr_stack_saved_destroy(&kept);
    tsr_tensor_destroy(&y);
    tsr_stack_destroy(&stack);
    tsr_model_file_close(&file);
    return reached;
}

CASE(stack_no_memory, "stack: memory runs out")
{
    char saved[128];
    made_model made;
    tsr_model_file *file = NULL;
    tsr_group *alone = NULL;
    if (ranks > 1) {
        case_skip("one rank alone shows the same");
        return;
    }
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    tsr_tensor *x = upload_ids();
    made_init(&made, &made_families[1], SEED); /* its head is the embedding */
    const char *path = made_write_hf(&made);
    OK(tsr_model_file_open(path, &file));
    snprintf(saved, sizeof saved, "%s/saved.safetensors", made.folder);
    for (uint64_t nth = 0; fails_at(tsr_model_file_config(file), path, saved, alone, x, nth);
         nth += 1 + nth / 4)
        ;
    tsr_tensor_destroy(&x);
    tsr_model_file_close(&file);
    made_finish(&made);
    tsr_group_destroy(&alone);
}

/* Passes that fail --------------------------------------------------------------------------- */

static void check_idle(const tsr_stack *stack, const char *what)
{
    const tsr_fsdp *const models[] = {stack->sharded, stack->tied};
    for (int i = 0; i < 2; i++)
        for (int u = 0; models[i] && u < models[i]->unit_count; u++)
            CHECK(!models[i]->units[u].in_use, "%s: unit %d of %s is in use", what, u,
                  i ? "tied" : "sharded");
}

/* Makes a call repeatedly, each time with another allocation failing, until it succeeds. After a
 * success it does `undo`. */
#define FAIL_EACH(stack, call, undo)                                                               \
    do {                                                                                           \
        bool reached_ = true;                                                                      \
        for (uint64_t nth_ = 0; reached_; nth_ += 1 + nth_ / 4) {                                  \
            tsr__fault_arm(TSR__FAULT_ALLOC, nth_, 0);                                             \
            const tsr_status status_ = (call);                                                     \
            reached_ = tsr__fault_site() != NULL;                                                  \
            tsr__fault_disarm();                                                                   \
            check_idle(stack, #call);                                                              \
            if (status_ == TSR_OK)                                                                 \
                (undo);                                                                            \
        }                                                                                          \
    } while (0)

/* Makes a step, and computes the logits after it. If `fails` is set, each pass fails several times
 * before it succeeds. */
static void step_after_failures(const tsr_model_config *config, tsr_group *alone, bool fails,
                                float logits[LOGITS])
{
    tsr_stack *stack = create_stack(config, alone, 0, 0);
    tsr_optimizer *optimizer = NULL;
    tsr_stack_saved *saved = NULL;
    tsr_layer_saved *head_saved = NULL;
    tsr_tensor *x = upload_ids(), *hidden = NULL, *y = NULL, *dhidden = NULL;
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue), &optimizer));
    OK(tsr_stack_add_to(stack, optimizer));
    if (fails)
        FAIL_EACH(stack, tsr_stack_forward(stack, x, NULL, &saved, &hidden),
                  (tsr_stack_saved_destroy(&saved), tsr_tensor_destroy(&hidden)));
    CHECK(!saved && !hidden, "a failed pass has outputs");
    OK(tsr_stack_forward(stack, x, NULL, &saved, &hidden));
    if (fails)
        FAIL_EACH(stack, tsr_stack_head_forward(stack, hidden, &head_saved, &y),
                  (tsr_layer_saved_destroy(&head_saved), tsr_tensor_destroy(&y)));
    OK(tsr_stack_head_forward(stack, hidden, &head_saved, &y));
    if (fails)
        FAIL_EACH(stack, tsr_stack_head_backward(stack, head_saved, y, &dhidden),
                  tsr_tensor_destroy(&dhidden));
    CHECK(!dhidden, "a failed pass has an output");
    if (fails) {
        OK(tsr_stack_head_backward(stack, head_saved, y, &dhidden));
        FAIL_EACH(stack, tsr_stack_backward(stack, saved, dhidden, NULL), (void)0);
        tsr_tensor_destroy(&dhidden);
        OK(tsr_optimizer_zero_grad(optimizer));
    }
    OK(tsr_stack_head_backward(stack, head_saved, y, &dhidden));
    OK(tsr_stack_backward(stack, saved, dhidden, NULL));
    OK(tsr_optimizer_step(optimizer, 0.01f));
    compute(stack, logits);
    tsr_optimizer_destroy(&optimizer);
    tsr_stack_saved_destroy(&saved);
    tsr_layer_saved_destroy(&head_saved);
    tsr_tensor *all[] = {x, hidden, y, dhidden};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
    tsr_stack_destroy(&stack);
}

CASE(stack_failed_passes, "stack: a pass that fails leaves no unit in use, and can be repeated")
{
    static float got[LOGITS], want[LOGITS];
    tsr_group *alone = NULL;
    if (ranks > 1) {
        case_skip("one rank alone shows the same");
        return;
    }
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    for (int f = 0; f < made_family_count; f++) {
        made_model made;
        tsr_model_file *file = NULL;
        if (!made_families[f].tied && !made_families[f].learned_positions)
            continue;
        made_init(&made, &made_families[f], SEED);
        OK(tsr_model_file_open(made_write_hf(&made), &file));
        step_after_failures(tsr_model_file_config(file), alone, false, want);
        step_after_failures(tsr_model_file_config(file), alone, true, got);
        CHECK(memcmp(got, want, sizeof got) == 0, "family %d: other logits", f);
        tsr_model_file_close(&file);
        made_finish(&made);
    }
    tsr_group_destroy(&alone);
}

/* Delta nets --------------------------------------------------------------------------------- */

enum { DELTA_LAYERS = 4, DELTA_KINDS = 2 };
#define DELTA_LOSS 422.347792 /* on any number of ranks */

/* Creates layers `first` and so on of a model of three delta nets and one attention with a gate. */
static tsr_stack *create_delta_nets(tsr_group *alone, int first, int layers, bool recompute)
{
    const tsr_model_delta_net net = {
        .struct_size = sizeof net, .key_heads = 2, .heads = 4, .key_dim = 8, .value_dim = 8};
    const tsr_rope_params rope = {.struct_size = sizeof rope, .rotary_dim = 4};
    const tsr_model_layer kinds[DELTA_KINDS] = {{.struct_size = sizeof kinds[0],
                                                 .hidden = 40,
                                                 .gated = true,
                                                 .activation = TSR_ACT_SILU,
                                                 .delta_net = &net},
                                                {.struct_size = sizeof kinds[0],
                                                 .heads = 4,
                                                 .kv_heads = 2,
                                                 .head_dim = 8,
                                                 .hidden = 40,
                                                 .rope = &rope,
                                                 .gated = true,
                                                 .activation = TSR_ACT_SILU,
                                                 .qk_norm = TSR_QK_NORM_HEADS,
                                                 .output_gate = true}};
    const tsr_model_config config = {.struct_size = sizeof config,
                                     .architecture = "qwen3_5_text",
                                     .layers = DELTA_LAYERS,
                                     .width = 32,
                                     .vocabulary = MADE_VOCABULARY,
                                     .context = 2 * TOKENS,
                                     .norm_epsilon = 1e-6,
                                     .norm = TSR_NORM_RMS,
                                     .bos = -1,
                                     .kind_count = DELTA_KINDS,
                                     .kinds =
                                         (const tsr_model_layer *const[]){&kinds[0], &kinds[1]},
                                     .layer_kinds = (const uint16_t[]){0, 0, 0, 1}};
    tsr_stack *stack = NULL;
    OK(tsr_stack_create(tsr_stack_params(.config = &config, .group = group, .first_layer = first,
                                         .layers = layers, .seed = SEED, .deviation = 0.2,
                                         .recompute = recompute),
                        &stack));
    OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = alone, .optimizer = TSR_OPTIMIZER_SGD)));
    return stack;
}

/* Families ----------------------------------------------------------------------------------- */

/* Returns half the sum of the squares of the logits, of which the logits themselves are the
 * gradient. */
static double half_squares(const float *logits, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)logits[i] * (double)logits[i] / 2;
    return sum;
}

/* Computes the logits and, if there is an optimizer, the gradients of half their squares. */
static double pass(tsr_stack *stack, int64_t vocabulary, tsr_optimizer *optimizer)
{
    tsr_stack_saved *saved = NULL;
    tsr_layer_saved *head_saved = NULL;
    tsr_tensor *x = upload_ids(), *hidden = NULL, *y = NULL, *dhidden = NULL;
    float *logits = calloc((size_t)(ROWS * TOKENS * vocabulary), sizeof *logits);
    CHECK(logits, "no memory");
    OK(tsr_stack_forward(stack, x, NULL, &saved, &hidden));
    OK(tsr_stack_head_forward(stack, hidden, &head_saved, &y));
    OK(tsr_stack_gather_logits(stack, y, logits));
    if (optimizer) {
        OK(tsr_stack_head_backward(stack, head_saved, y, &dhidden));
        OK(tsr_stack_backward(stack, saved, dhidden, NULL));
    }
    const double loss = half_squares(logits, ROWS * TOKENS * vocabulary);
    free(logits);
    tsr_stack_saved_destroy(&saved);
    tsr_layer_saved_destroy(&head_saved);
    tsr_tensor *all[] = {x, hidden, y, dhidden};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
    return loss;
}

/* A small step against the gradient g must reduce the loss by rate · |g|². The step is that of the
 * adapter, unless it is NULL. */
static void check_step(tsr_stack *stack, int64_t vocabulary, const char *family, tsr_lora *adapter)
{
    tsr_optimizer *optimizer = NULL;
    double norm;
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue, .kind = TSR_OPTIMIZER_SGD),
                            &optimizer));
    OK(adapter ? tsr_lora_add_to(adapter, optimizer) : tsr_stack_add_to(stack, optimizer));
    const double before = pass(stack, vocabulary, optimizer);
    OK(tsr_optimizer_clip(optimizer, INFINITY, tsr_optimizer_clip_params(.group = group), &norm));
    const double rate = 1e-4 * before / (norm * norm);
    OK(tsr_optimizer_step(optimizer, (float)rate));
    const double reduced = (before - pass(stack, vocabulary, NULL)) / (rate * norm * norm);
    CHECK(fabs(reduced - 1) < 0.03, "%s: the loss is reduced by %g of what is expected", family,
          reduced);
    tsr_optimizer_destroy(&optimizer);
}

/* Compares two documents in one row with each in a row of its own. */
static void check_documents(tsr_stack *stack)
{
    enum { FIRST = 5 };
    static float packed[LOGITS], single[LOGITS];
    int32_t starts[ROWS * TOKENS] = {0};
    tsr_tensor *x = upload_ids(), *hidden = NULL, *part = NULL;
    for (int i = 0; i < ROWS * TOKENS; i++)
        starts[i] = i % TOKENS < FIRST ? 0 : FIRST;
    OK(tsr_stack_forward(stack, x, starts, NULL, &hidden));
    logits_of(stack, hidden, packed);
    tsr_tensor_destroy(&hidden);
    OK(tsr_tensor_slice(x, 1, FIRST, TOKENS, 1, &part));
    OK(tsr_stack_forward(stack, part, NULL, NULL, &hidden));
    logits_of(stack, hidden, single);
    for (int i = 0; i < ROWS * (TOKENS - FIRST) * MADE_VOCABULARY; i++) {
        const int token = i / MADE_VOCABULARY, row = token / (TOKENS - FIRST),
                  at = row * TOKENS + FIRST + token % (TOKENS - FIRST);
        const float got = packed[at * MADE_VOCABULARY + i % MADE_VOCABULARY];
        CHECK(fabs((double)(got - single[i])) < 1e-4, "logit %d is %g, not %g", i, (double)got,
              (double)single[i]);
    }
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&part);
    tsr_tensor_destroy(&hidden);
}

CASE(stack_delta_nets, "stack: delta nets and attention with a gate are trained, also in stages")
{
    static float whole[LOGITS], divided[LOGITS];
    tsr_group *alone = NULL;
    tsr_lora *adapter = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    tsr_stack *one = create_delta_nets(alone, 0, 0, false),
              *again = create_delta_nets(alone, 0, 0, true),
              *first = create_delta_nets(alone, 0, 2, false),
              *last = create_delta_nets(alone, 2, 2, false);
    tsr_tensor *x = upload_ids(), *between = NULL, *hidden = NULL;
    compute(one, whole);
    OK(tsr_stack_forward(first, x, NULL, NULL, &between));
    OK(tsr_stack_forward(last, between, NULL, NULL, &hidden));
    logits_of(last, hidden, divided);
    CHECK(memcmp(whole, divided, sizeof whole) == 0, "stages have other logits");
    check_documents(one);
    const double loss = pass(one, MADE_VOCABULARY, NULL);
    CHECK(fabs(loss - DELTA_LOSS) < 1e-5 * DELTA_LOSS, "the loss is %.9g, not %.9g", loss,
          (double)DELTA_LOSS);
    check_step(one, MADE_VOCABULARY, "delta nets", NULL);
    check_step(again, MADE_VOCABULARY, "delta nets that are recomputed", NULL);
    CHECK(pass(one, MADE_VOCABULARY, NULL) == pass(again, MADE_VOCABULARY, NULL),
          "other losses if layers are recomputed");
    OK(tsr_lora_create(
        tsr_lora_params(.stack = again, .rank = 2, .trainable = true,
                        /* q of attention with a gate cannot have one */
                        .targets = TSR_LORA_K | TSR_LORA_V | TSR_LORA_O | TSR_LORA_GATE),
        &adapter));
    check_step(again, MADE_VOCABULARY, "adapters of delta nets", adapter);
    tsr_tensor *tensors[] = {x, between, hidden};
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&tensors[i]);
    tsr_lora_destroy(&adapter);
    tsr_stack *stacks[] = {one, again, first, last};
    for (int i = 0; i < 4; i++)
        tsr_stack_destroy(&stacks[i]);
    tsr_group_destroy(&alone);
}

/* Keys of other layers, and inputs that layers have of their own ------------------------------ */

#define GEMMA TEST_DATA "/model/families/gemma4/gemma4-f16.gguf"
/* Of the gradient of half the squares of the logits, on any number of ranks. */
#define GEMMA_NORM 7999.97

static tsr_stack *read_gemma(tsr_group *alone, const char *trained, bool recompute)
{
    tsr_model_file *file = NULL;
    tsr_stack *stack = NULL;
    OK(tsr_model_file_open(GEMMA, &file));
    OK(tsr_stack_create(tsr_stack_params(.config = tsr_model_file_config(file), .group = group,
                                         .trained = trained, .recompute = recompute),
                        &stack));
    OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = alone, .optimizer = TSR_OPTIMIZER_SGD)));
    OK(tsr_stack_load(stack, file));
    tsr_model_file_close(&file);
    return stack;
}

enum { GEMMA_PARAMETERS = 13, GROUPS = 3 }; /* that is_of_gemma selects; that move together */

typedef struct slopes {
    double loss;    /* before the parameters move */
    int group, met; /* the group that moves; parameters that have been met */
    double sign, rates[GEMMA_PARAMETERS];
    double want; /* Σ 2 · r · |g|² of the group */
} slopes;

/* Returns whether a parameter is one that only such models have, or one of keys and values that
 * other layers use. The norm of the whole gradient depends on the others, too. */
static bool is_of_gemma(const tsr__stack_parameter *p)
{
    return strncmp(p->ours, "input_", 6) == 0 ||
           (p->layer == 4 && strncmp(p->ours, "end.", 4) == 0) ||
           ((p->layer == 1 || p->layer == 2) &&
            (strncmp(p->ours, "attention.k", 11) == 0 || strncmp(p->ours, "attention.v", 11) == 0));
}

/* Chooses how far a parameter moves along its gradient. */
static void choose_rate(slopes *s, const tsr_fsdp_shard *shard, int number)
{
    double *grad = values_of(shard->grad), *values = values_of(shard->value), square = 0, size = 0;
    for (uint64_t i = 0; i < shard->range.count; i++) {
        square += grad[i] * grad[i];
        size += values[i] * values[i];
    }
    s->rates[number] = fmin(2e-4 * s->loss / square, 0.02 * sqrt(size / square));
    s->want += 2 * s->rates[number] * square;
    free(grad);
    free(values);
}

/* Moves a parameter of the group by sign · r · its gradient g. */
static tsr_status move_parameter(void *user, const tsr__stack_parameter *p)
{
    slopes *s = user;
    tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
    if (!is_of_gemma(p))
        return TSR_OK;
    const int number = s->met++;
    CHECK(number < GEMMA_PARAMETERS, "%s of layer %d is one too many", p->ours, p->layer);
    if (number % GROUPS != s->group)
        return TSR_OK;
    OK(tsr_fsdp_get_shard(p->sharded, p->number, &shard));
    if (s->rates[number] == 0)
        choose_rate(s, &shard, number);
    OK(tsr_axpy(queue, shard.value, (float)(s->sign * s->rates[number]), shard.grad));
    return TSR_OK;
}

/* Moves the group, and computes the loss. */
static double loss_beside(slopes *s, tsr_stack *stack, double sign)
{
    s->met = 0;
    s->sign = sign;
    OK(tsr__stack_each(stack, move_parameter, s));
    CHECK(s->met == GEMMA_PARAMETERS, "%d parameters", s->met);
    return pass(stack, stack->config->vocabulary, NULL);
}

/* If a group moves by ±r · g, the losses must differ by Σ 2 · r · |g|². */
static void check_group(tsr_stack *stack, double loss, int which)
{
    slopes s = {.loss = loss, .group = which};
    const double above = loss_beside(&s, stack, 1), below = loss_beside(&s, stack, -2),
                 got = above - below;
    CHECK(fabs(got - s.want) < 0.01 * s.want, "group %d: the loss changes by %g, not %g", which,
          got, s.want);
    loss_beside(&s, stack, 1); /* back */
}

/* Compares gradients of parameters with differences of losses. */
static void check_slopes(tsr_stack *stack)
{
    tsr_optimizer *optimizer = NULL;
    double norm;
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue, .kind = TSR_OPTIMIZER_SGD),
                            &optimizer));
    OK(tsr_stack_add_to(stack, optimizer));
    const double loss = pass(stack, stack->config->vocabulary, optimizer);
    OK(tsr_optimizer_clip(optimizer, INFINITY, tsr_optimizer_clip_params(.group = group), &norm));
    CHECK(fabs(norm - GEMMA_NORM) < 1e-4 * GEMMA_NORM, "the gradient's norm is %.9g, not %.9g",
          norm, (double)GEMMA_NORM);
    for (int which = 0; which < GROUPS && ranks == 1; which++)
        check_group(stack, loss, which);
    OK(tsr_optimizer_zero_grad(optimizer));
    tsr_optimizer_destroy(&optimizer);
}

/* Layers 3 to 5 use the keys of layers 1 and 2. */
CASE(stack_shared_keys, "stack: keys of other layers, and inputs of layers, are trained")
{
    static const char *const chosen[] = {"2", "0-3"};
    tsr_group *alone = NULL;
    tsr_lora *adapter = NULL;
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    tsr_stack *stack = read_gemma(alone, NULL, false), *again = read_gemma(alone, NULL, true);
    const int64_t vocabulary = stack->config->vocabulary;
    check_slopes(stack);
    tsr_stack_destroy(&stack); /* whose weights were moved, and moved back with errors */
    stack = read_gemma(alone, NULL, false);
    check_step(again, vocabulary, "gemma4 that is recomputed", NULL);
    check_step(stack, vocabulary, "gemma4", NULL);
    CHECK(pass(stack, vocabulary, NULL) == pass(again, vocabulary, NULL),
          "other losses if layers are recomputed");
    tsr_stack_destroy(&stack);
    tsr_stack_destroy(&again);
    for (int i = 0; i < (ranks == 1 ? 2 : 1); i++) {
        stack = read_gemma(alone, chosen[i], i == 0);
        check_step(stack, vocabulary, chosen[i], NULL);
        tsr_stack_destroy(&stack);
    }
    OK(tsr_model_file_open(GEMMA, &file));
    OK(tsr_model_open(file, tsr_model_params(.group = group, .sharded_over = alone), &model));
    OK(tsr_lora_create(tsr_lora_params(.stack = tsr_model_stack(model), .rank = 2,
                                       .trainable = true,
                                       .targets = TSR_LORA_Q | TSR_LORA_K | TSR_LORA_V |
                                                  TSR_LORA_O | TSR_LORA_DOWN),
                       &adapter));
    check_step(tsr_model_stack(model), vocabulary, "adapters of gemma4", adapter);
    tsr_lora_destroy(&adapter);
    tsr_model_close(&model);
    tsr_model_file_close(&file);
    tsr_group_destroy(&alone);
}

/* Chosen layers ------------------------------------------------------------------------------ */

/* The sums of the values of frozen and of trained parameters. */
typedef struct value_sums {
    const tsr_stack *stack;
    double frozen, trained;
} value_sums;

static tsr_status add_values(void *user, const tsr__stack_parameter *p)
{
    value_sums *sums = user;
    const bool is_frozen = p->layer != 1;
    tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
    CHECK(is_frozen == (p->sharded != sums->stack->sharded), "%s of layer %d is %s", p->ours,
          p->layer, is_frozen ? "trained" : "frozen");
    OK(tsr_fsdp_get_shard(p->sharded, p->number, &shard));
    if (!shard.value)
        return TSR_OK;
    CHECK(!is_frozen || (!shard.grad && !shard.moment1), "%s of layer %d has a gradient", p->ours,
          p->layer);
    double *values = values_of(shard.value);
    for (uint64_t i = 0; i < shard.range.count; i++)
        *(is_frozen ? &sums->frozen : &sums->trained) += values[i];
    free(values);
    return TSR_OK;
}

/* Layer 1 is trained: a step has its gradients, and changes nothing else. */
static void check_trained(made_model *made, const char *path, tsr_group *alone)
{
    static float logits[LOGITS];
    tsr_model_file *file = NULL;
    tsr_stack *stack = NULL;
    OK(tsr_model_file_open(path, &file));
    OK(tsr_stack_create(
        tsr_stack_params(.config = tsr_model_file_config(file), .group = group, .trained = "1"),
        &stack));
    OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = alone, .optimizer = TSR_OPTIMIZER_SGD)));
    OK(tsr_stack_load(stack, file));
    compute(stack, logits);
    check_logits(made, logits, "of which a layer is trained");
    value_sums before = {.stack = stack}, after = {.stack = stack};
    OK(tsr__stack_each(stack, add_values, &before));
    check_step(stack, MADE_VOCABULARY, made->family.type, NULL);
    OK(tsr__stack_each(stack, add_values, &after));
    CHECK(before.frozen == after.frozen && before.trained != after.trained,
          "%s: sums of values %g and %g, then %g and %g", made->family.type, before.frozen,
          before.trained, after.frozen, after.trained);
    FAILS(tsr_stack_reshard(stack, tsr_fsdp_params(.group = alone)), TSR_ERR_UNSUPPORTED,
          "stack: a stack of which only some layers are trained cannot be divided again");
    tsr_stack_destroy(&stack);
    FAILS(tsr_stack_create(tsr_stack_params(.config = tsr_model_file_config(file), .group = group,
                                            .trained = "1-2"),
                           &stack),
          TSR_ERR_INVALID,
          "stack: trained is '1-2'; numbers from 0 to 1 and ranges of them, such as 0-3,7, are "
          "needed");
    tsr_model_file_close(&file);
}

/* A model whose weights are divided while it is opened has the logits of its files. */
static void check_opened(made_model *made, const char *path, tsr_group *alone)
{
    static float logits[LOGITS];
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    OK(tsr_model_file_open(path, &file));
    OK(tsr_model_open(file, tsr_model_params(.group = group, .sharded_over = alone), &model));
    tsr_stack *stack = tsr_model_stack(model);
    CHECK(stack->sharded && tsr__stack_is_frozen(stack) && !stack->positions, "%s is not sharded",
          made->family.type);
    CHECK(!tsr_layer_parameter(tsr_stack_block(stack, 0), 0)->tensor, "a layer has memory");
    compute(stack, logits);
    check_logits(made, logits, "divided while it was opened");
    tsr_model_close(&model);
    tsr_model_file_close(&file);
}

/* One family has a head that is the embedding, and learned positions. */
CASE(stack_trained, "stack: chosen layers are trained, and the others stay as they are")
{
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    for (int f = 0; f < made_family_count; f++) {
        made_model made;
        if (f > 0 && !made_families[f].transposed)
            continue;
        made_init(&made, &made_families[f], SEED + (uint64_t)f);
        const char *path = made_write_hf(&made);
        check_trained(&made, path, alone);
        check_opened(&made, path, alone);
        made_finish(&made);
    }
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    OK(tsr_model_file_open(GEMMA, &file));
    FAILS(tsr_model_open(
              file, tsr_model_params(.group = group, .sharded_over = alone, .next_token = true),
              &model),
          TSR_ERR_INVALID, "model: with sharded_over, next_token must be false");
    tsr_model_file_close(&file);
    tsr_group_destroy(&alone);
}

CASE(stack_families, "stack: gradients of families, which are read, saved and read again")
{
    static const char *const families[] = {
        "smollm3",    "granite",  "olmo2",  "olmo3",     "gemma2",    "gemma3",   "phi3",
        "ministral3", "qwen2moe", "gptoss", "qwen3next", "qwen35moe", "deepseek2"};
    tsr_group *alone = NULL;
    if (ranks > 1) {
        case_skip("one rank alone shows the same");
        return;
    }
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        char folder[512], saved[] = "/tmp/tessera-stack-XXXXXX", path[64];
        tsr_model_file *file = NULL;
        snprintf(folder, sizeof folder, "%s/model/families/%s/hf", TEST_DATA, families[f]);
        OK(tsr_model_file_open(folder, &file));
        const int64_t vocabulary = tsr_model_file_config(file)->vocabulary;
        tsr_stack *stack = NULL;
        OK(tsr_stack_create(tsr_stack_params(.config = tsr_model_file_config(file), .group = group),
                            &stack));
        OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = alone, .optimizer = TSR_OPTIMIZER_SGD)));
        OK(tsr_stack_load(stack, file));
        const double loss = pass(stack, vocabulary, NULL);
        CHECK(mkdtemp(saved), "no folder");
        snprintf(path, sizeof path, "%s/model.safetensors", saved);
        OK(tsr_stack_save(stack, path, NULL));
        check_step(stack, vocabulary, families[f], NULL);
        tsr_model_file *written = NULL;
        OK(tsr_model_file_open(saved, &written));
        OK(tsr_stack_load(stack, written));
        tsr_model_file_close(&written);
        const double again = pass(stack, vocabulary, NULL);
        CHECK(fabs(again - loss) <= 1e-5 * loss, "%s: %g, not %g, after it was saved", families[f],
              again, loss);
        tsr_stack_destroy(&stack);
        tsr_model_file_close(&file);
        unlink(path);
        snprintf(path, sizeof path, "%s/config.json", saved);
        unlink(path);
        rmdir(saved);
    }
    tsr_group_destroy(&alone);
}
