/* Tests drafts of a model's own layer that predicts further tokens: they are those of a computation
 * in double precision, texts are those without drafts, and memory is that of the plan. */
#include <inttypes.h>

#include "base/fault.h"
#include "model/file.h"
#include "model/generate/draft.h"
#include "model/model.h"
#include "model/next_layer.h"
#include "model/open.h"
#include "model/place.h"
#include "parallel/spmd.h"

enum {
    SEQUENCES = 4,
    DRAFTS = 4,
    MOST_IDS = 160,
    VOCABULARY = NEXT_VOCABULARY,
    CONTEXT = NEXT_CONTEXT,
    WIDTH = NEXT_WIDTH
};

static next_kind kind; /* of the model */
static tsr_model *model;

static tsr_status open_next(const tsr_model_params *params, tsr_model **out)
{
    tsr_model_file *file = NULL;
    const tsr_status status = next_open_file(kind, params->next_token, &file);
    return open_from(status, &file, params, out);
}

/* Adds NEXT_JOIN times the embedding to the join, on ranks that have it. */
static void join(void)
{
    if (!model->is_last)
        return;
    const tsr_parameter *p = tsr_layer_parameter(model->stack->next.join, 0);
    double *values = values_of(p->tensor);
    for (int64_t r = 0; r < p->length; r++)
        values[r * 2 * WIDTH + p->offset + r] += NEXT_JOIN;
    tensor_put(p->tensor, values);
    free(values);
}

static void open_joined(void)
{
    OK(open_next(tsr_model_params(.group = group, .next_token = true, .context = CONTEXT,
                                  .sequences = SEQUENCES),
                 &model));
    join();
}

static tsr_generator *generator_of(bool drafts, bool rejects, int64_t piece, int64_t cache_tokens)
{
    tsr_generator *generator = NULL;
    OK(tsr_generator_create(
        tsr_generator_params(.model = model, .sequences = SEQUENCES, .piece = piece, .prefill = 16,
                             .ahead = 2, .cache_dtype = TSR_F32, .prefix_cache = piece > 0,
                             .cache_tokens = cache_tokens, .draft_tokens = drafts ? DRAFTS : 0,
                             .draft = drafts ? TSR_DRAFT_MTP : TSR_DRAFT_NONE,
                             .rejection_sampling = rejects),
        &generator));
    return generator;
}

static void add_text(tsr_generator *generator, int which, int64_t count, int64_t most,
                     const tsr_sampling_params *sampling)
{
    int32_t ids[MOST_IDS];
    int sequence;
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)((number(7 + (uint64_t)which % 2, i) + 1) / 2 * VOCABULARY);
    OK(tsr_generator_add(generator,
                         tsr_sequence_params(.prompt = ids, .prompt_count = count,
                                             .sampling = sampling, .number = (uint64_t)which,
                                             .max_tokens = most),
                         &sequence));
}

/* All passes have the most drafts, or none, whatever they cost. */
static void draft_always(tsr_generator *generator, bool drafts)
{
    if (!generator->drafts)
        return;
    generator->drafts->trial = (tsr__draft_trial){.way = drafts, .most = INT64_MAX};
    memset(generator->drafts->passes, 0, sizeof generator->drafts->passes);
}

typedef struct texts {
    int count[SEQUENCES];
    int32_t tokens[SEQUENCES][CONTEXT];
    tsr_generator_stats stats;
} texts;

/* Makes steps until all sequences have ended, `pause` of which after the first 10 have no drafts.
 */
static void finish(tsr_generator *generator, int pause, texts *out)
{
    tsr_generated some[SEQUENCES];
    memset(out, 0, sizeof *out);
    out->stats.struct_size = sizeof out->stats;
    for (int step = 0;; step++) {
        int count;
        draft_always(generator, step < 10 || step >= 10 + pause);
        OK(step_tokens(generator, some, &count));
        OK(tsr_generator_get_stats(generator, &out->stats));
        for (int i = 0; i < count; i++) {
            const int at = some[i].sequence;
            if (some[i].token >= 0)
                out->tokens[at][out->count[at]++] = some[i].token;
        }
        if (out->stats.running == 0)
            break;
    }
    tsr_generator_destroy(&generator);
}

static void compare(const texts *got, const texts *want, const char *how)
{
    for (int s = 0; s < SEQUENCES; s++) {
        CHECK(got->count[s] == want->count[s], "%s: sequence %d has %d tokens, not %d", how, s,
              got->count[s], want->count[s]);
        for (int i = 0; i < want->count[s]; i++)
            CHECK(got->tokens[s][i] == want->tokens[s][i],
                  "%s: token %d of sequence %d is %d, not %d", how, i, s, (int)got->tokens[s][i],
                  (int)want->tokens[s][i]);
    }
}

/* Drafts ------------------------------------------------------------------------------------- */

/* Computes the drafts after a text of `count` tokens, of which the layer knows those from place
 * `begin` on. Returns how many of them are certain. */
static int reference(int begin, int count, const int32_t *ids, int32_t *drafts)
{
    double *given = doubles(count), hidden[WIDTH], gap;
    for (int i = 0; i < count; i++)
        given[i] = ids[i];
    tsr_tensor *x = tensor_of(TSR_I32, 2, (int64_t[]){1, count}, given), *y = NULL;
    OK(tsr_stack_forward(model->stack, x, NULL, NULL, &y)); /* with the last norm */
    double *all = values_of(y);
    for (int p = begin; p < count - 1; p++) {
        memcpy(hidden, all + (size_t)p * WIDTH, sizeof hidden);
        drafts[0] = next_predict(p - begin, ids[p + 1], hidden, &gap);
    }
    int certain = gap > 1e-2;
    for (int t = 1; t < DRAFTS; t++) {
        drafts[t] = next_predict(count - 2 - begin + t, drafts[t - 1], hidden, &gap);
        certain += certain == t && gap > 1e-2;
    }
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    free(given);
    free(all);
    return certain;
}

/* Generates a text of `prompt` tokens and 10 more, of which the layer knows those from `begin` on,
 * and compares all drafts with the reference. Returns how many were compared. */
static int compare_drafts(tsr_generator *generator, int begin, int prompt)
{
    tsr_generated some[SEQUENCES];
    int32_t want[DRAFTS];
    int64_t seen = 0;
    int compared = 0, count;
    add_text(generator, 0, prompt, 10, NULL);
    do {
        draft_always(generator, true);
        const int64_t length = generator->sequences[0].length;
        OK(step_tokens(generator, some, &count));
        const tsr__drafted *own = &generator->drafts->of[0];
        /* a pass of this step had drafts after the tokens before the step */
        if (length < 2 || own->next != 1 || length == seen)
            continue;
        seen = length;
        const int certain = reference(begin, (int)length, generator->sequences[0].tokens, want);
        CHECK(own->found >= 1, "no drafts after %" PRId64 " tokens", length);
        for (int t = 0; t < own->found && t < certain; t++, compared++)
            CHECK(own->ids[t] == want[t], "draft %d after %" PRId64 " tokens is %d, not %d", t,
                  length, (int)own->ids[t], (int)want[t]);
    } while (count == 0 || some[0].finish == TSR_FINISH_NONE);
    OK(tsr_generator_remove(generator, 0));
    return compared;
}

/* On one rank, the layer knows a piece that is found in the prefix cache, unless it has left the
 * layer's cache. */
static void check_drafts(void)
{
    int compared = 0, found = 0;
    open_joined();
    next_read(kind);
    tsr_generator *generator = generator_of(true, false, 0, 0);
    compared += compare_drafts(generator, 0, kind == NEXT_ATTENTION ? 1 : 24);
    tsr_generator_destroy(&generator);
    const bool with_pieces = kind == NEXT_ATTENTION && ranks == 1;
    generator = generator_of(true, false, 64, 0);
    for (int i = 0; i < 3 && with_pieces; i++) {
        if (i == 2)
            tsr__drafts_forget_prefixes(generator);
        found += compare_drafts(generator, i < 2 ? 0 : 64, 70);
        CHECK(generator->drafts->found_tokens == (i == 0 ? 0 : 64), "%d: %" PRId64 " tokens found",
              i, generator->drafts->found_tokens);
    }
    tsr_generator_destroy(&generator);
    CHECK(compared > 5 && (found > 15 || !with_pieces), "only %d and %d drafts", compared, found);
    tsr_model_close(&model);
}

CASE(next_drafts, "draft: a model's own layer predicts what double precision does")
{
    for (int k = 0; k < NEXT_KINDS; k++) {
        kind = (next_kind)k;
        check_drafts();
    }
    kind = NEXT_ATTENTION;
}

/* Texts -------------------------------------------------------------------------------------- */

/* With states, a pause in which features are only kept, texts that wait, for which drafts are
 * dropped, and the prefix cache. */
static void check_exact(void)
{
    static const tsr_sampling_params samplings[] = {
        {.temperature = 0.5, .seed = 4}, {.temperature = 0.5, .seed = 9}, {.temperature = 0}};
    static texts want, got;
    open_joined();
    for (int p = 0; p < 3; p++) {
        const bool waits = p == 2;
        if ((p == 0) != (kind == NEXT_LATENT) || (p == 1 && ranks > 1))
            continue;
        tsr_sampling_params sampling = samplings[p];
        sampling.struct_size = sizeof sampling;
        for (int drafts = 0; drafts < 2; drafts++) {
            tsr_generator *generator = generator_of(drafts, false, waits ? 64 : 0, waits ? 320 : 0);
            for (int s = 0; s < SEQUENCES; s++)
                add_text(generator, s, waits ? 72 + s : 1 + 9 * s, p == 1 ? 65 : 20, &sampling);
            finish(generator, p == 1 ? 36 : 0, drafts ? &got : &want);
        }
        compare(&got, &want, waits ? "waits" : p == 1 ? "pause" : "latent");
        CHECK(got.stats.accepted_tokens > got.stats.drafted_tokens / 16 &&
                  got.stats.drafted_passes > 10,
              "%d: %" PRIu64 " of %" PRIu64 " drafts were right in %" PRIu64 " passes", p,
              got.stats.accepted_tokens, got.stats.drafted_tokens, got.stats.drafted_passes);
        CHECK(!waits || (got.stats.preemptions > 0 && got.stats.cached_tokens > 0),
              "%" PRIu64 " waited, %" PRIu64 " tokens found", got.stats.preemptions,
              got.stats.cached_tokens);
    }
    if (kind == NEXT_LATENT) {
        tsr_model_close(&model);
        return;
    }
    /* By rejection sampling, other tokens, of which more are right. */
    tsr_generator *generator = generator_of(true, true, 0, 0);
    for (int s = 0; s < SEQUENCES; s++)
        add_text(generator, s, 1 + 9 * s, 20, tsr_sampling_params(.temperature = 1, .seed = 4));
    finish(generator, 0, &got);
    CHECK(got.stats.accepted_tokens > got.stats.drafted_tokens / 16 && got.count[0] == 20,
          "%" PRIu64 " of %" PRIu64 " drafts were right", got.stats.accepted_tokens,
          got.stats.drafted_tokens);
    tsr_model_close(&model);
}

CASE(next_exact, "draft: texts are the same with drafts of a model's own layer")
{
    for (int k = 0; k < NEXT_KINDS; k++) {
        kind = (next_kind)k;
        check_exact();
    }
    kind = NEXT_ATTENTION;
}

/* Generates a text, of which a piece is kept, while the nth allocation or Vulkan call fails. A step
 * that fails has not given tokens; after the sequence has been removed, the next text is the same
 * as without failures. Returns whether the event was reached. */
static bool fails_at(tsr_generator *generator, tsr__fault_kind which, uint64_t nth,
                     const texts *want)
{
    tsr_generated some[SEQUENCES];
    int count = 0, given = 0;
    add_text(generator, 0, 70, want->count[0], NULL);
    tsr__fault_arm(which, nth, -1 /* VK_ERROR_OUT_OF_HOST_MEMORY */);
    while (count < want->count[0]) {
        draft_always(generator, true);
        if (step_tokens(generator, some, &given) != TSR_OK)
            break;
        for (int i = 0; i < given; i++, count++)
            CHECK(some[i].token == want->tokens[0][count],
                  "event %" PRIu64 ": token %d is %d, not %d", nth, count, (int)some[i].token,
                  (int)want->tokens[0][count]);
    }
    const bool reached = tsr__fault_site() != NULL;
    tsr__fault_disarm();
    CHECK(reached || count == want->count[0], "%d tokens: %s", count, tsr_last_error());
    OK(tsr_generator_remove(generator, 0));
    return reached;
}

CASE(next_failures, "draft: memory runs out, and the driver fails, with a model's own layer")
{
    static texts want;
    if (ranks > 1) {
        case_skip("one rank alone shows the same");
        return;
    }
    open_joined();
    tsr_generator *generator = generator_of(false, false, 64, 0);
    add_text(generator, 0, 70, 6, NULL);
    finish(generator, 0, &want);
    generator = generator_of(true, false, 64, 0);
    for (uint64_t nth = 0; fails_at(generator, TSR__FAULT_ALLOC, nth, &want); nth += 1 + nth / 8)
        ;
    for (uint64_t nth = 0; fails_at(generator, TSR__FAULT_VULKAN, nth, &want); nth += 1 + nth / 8)
        ;
    CHECK(generator->drafts->found_tokens > 0, "no piece was found");
    tsr_generator_destroy(&generator);
    tsr_model_close(&model);
}

/* Stages -------------------------------------------------------------------------------------- */

/* Opens the model in two stages, the first of which has `layers` of its layers, and divides the
 * heads of a stage by rates. Checks that ranks have the weights of the plan. */
static void open_stages(const place *p, int layers)
{
    static const double rates[] = {1, 3, 3, 1};
    const int each = ranks / STAGES, given[STAGES] = {layers, 3 - layers};
    const tsr_partition_params partition = {.struct_size = sizeof partition,
                                            .kind = TSR_PARTITION_WEIGHTED,
                                            .rates = rates + (ptrdiff_t)p->stage * each};
    tsr_model_rank_plan plans[4];
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    tsr_model_file *file = NULL;
    for (int r = 0; r < 4; r++)
        plans[r] = TSR_INIT(tsr_model_rank_plan);
    OK(next_open_file(kind, true, &file));
    const tsr_partition_params all = {
        .struct_size = sizeof all, .kind = TSR_PARTITION_WEIGHTED, .rates = rates};
    OK(tsr_model_plan(file,
                      tsr_model_plan_params(.ranks = ranks, .stages = STAGES, .stage_layers = given,
                                            .partition = &all, .context = CONTEXT,
                                            .sequences = SEQUENCES, .next_token = true),
                      NULL, plans, NULL));
    tsr_model_file_close(&file);
    OK(open_next(tsr_model_params(.group = p->group, .stages = p->stages, .partition = &partition,
                                  .stage_layers = given, .next_token = true, .context = CONTEXT,
                                  .memory_bytes = plans[my_rank].total_bytes,
                                  .cache_dtype = TSR_F32, .sequences = SEQUENCES),
                 &model));
    OK(tsr_model_get_stats(model, &stats));
    CHECK(stats.weight_bytes == plans[my_rank].weight_bytes && stats.layers == given[p->stage],
          "%d layers, %" PRIu64 " bytes, not %" PRIu64, stats.layers, stats.weight_bytes,
          plans[my_rank].weight_bytes);
    join();
}

/* Generates texts with prompts of several parts for the stages, of which some begin with kept
 * pieces, with drafts or without. */
static void run_stages(bool drafts, int64_t piece, texts *out)
{
    tsr_generator *generator = generator_of(drafts, false, piece, 0);
    for (int s = 0; s < SEQUENCES; s++)
        add_text(generator, s, piece > 0 ? 66 + 35 * (s / 2) : 1 + 21 * s, 12,
                 tsr_sampling_params(.temperature = s % 2 ? 0.5 : 0, .seed = 9));
    finish(generator, 0, out);
}

/* Drafts are those of the model on one rank, which a computation in double precision has checked,
 * so as many of them are right. */
CASE(next_stages, "stages: texts are the same with drafts of a model's own layer")
{
    static texts want, got, whole;
    place p;
    if (!place_init(&p))
        return;
    for (int layers = 1; layers <= 2; layers++) {
        const int64_t piece = layers == 2 ? 64 : 0;
        const bool alone = layers == 1 && ranks == STAGES;
        if (alone) {
            OK(open_next(tsr_model_params(.group = p.alone, .next_token = true, .context = CONTEXT,
                                          .sequences = SEQUENCES),
                         &model));
            join();
            run_stages(true, piece, &whole);
            tsr_model_close(&model);
        }
        open_stages(&p, layers);
        run_stages(false, piece, &want);
        run_stages(true, piece, &got);
        compare(&got, &want, "stages");
        CHECK(got.stats.drafted_passes > 5 &&
                  got.stats.accepted_tokens > got.stats.drafted_tokens / 16,
              "%" PRIu64 " of %" PRIu64 " drafts were right in %" PRIu64 " passes",
              got.stats.accepted_tokens, got.stats.drafted_tokens, got.stats.drafted_passes);
        CHECK(!alone || (got.stats.accepted_tokens == whole.stats.accepted_tokens &&
                         got.stats.drafted_tokens == whole.stats.drafted_tokens),
              "%" PRIu64 " of %" PRIu64 " drafts were right, not %" PRIu64 " of %" PRIu64,
              got.stats.accepted_tokens, got.stats.drafted_tokens, whole.stats.accepted_tokens,
              whole.stats.drafted_tokens);
        tsr_model_close(&model);
    }
    place_finish(&p);
}

/* Memory and mistakes ------------------------------------------------------------------------ */

static tsr_status open_within(uint64_t memory_bytes, tsr_model **out)
{
    return open_next(tsr_model_params(.group = group, .next_token = true, .context = CONTEXT,
                                      .sequences = SEQUENCES, .memory_bytes = memory_bytes,
                                      .cache_dtype = TSR_F32),
                     out);
}

/* Checks the memory that the plan adds for the layer. `norms` are the numbers of what each rank has
 * in full, and `keys` those of a token's keys and values, which `copies` ranks have. */
static void check_memory(uint64_t norms, uint64_t keys, int copies)
{
    tsr_model_file *file = NULL;
    tsr_model_rank_plan with[4], without[4];
    tsr_model *other = NULL;
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    for (int r = 0; r < 4; r++)
        with[r] = without[r] = TSR_INIT(tsr_model_rank_plan);
    OK(next_open_file(kind, true, &file));
    tsr_model_plan_params params = {
        .struct_size = sizeof params, .ranks = ranks, .context = CONTEXT, .sequences = SEQUENCES};
    OK(tsr_model_plan(file, &params, NULL, without, NULL));
    params.next_token = true;
    OK(tsr_model_plan(file, &params, NULL, with, NULL));
    uint64_t more = 0, cache = 0, planned = 0;
    for (int r = 0; r < ranks; r++) {
        more += with[r].weight_bytes - without[r].weight_bytes;
        cache += with[r].cache_bytes - without[r].cache_bytes;
        planned = with[r].total_bytes > planned ? with[r].total_bytes : planned;
    }
    const uint64_t all = tsr_model_config_parameters(tsr_model_file_config(file), 3);
    CHECK(more == sizeof(float) * (all + (uint64_t)(ranks - 1) * norms),
          "%" PRIu64 " bytes, not those of %" PRIu64 " and more numbers", more, all);
    /* all ranks have the features that wait */
    CHECK(cache == sizeof(float) * SEQUENCES *
                       ((uint64_t)copies * CONTEXT * keys +
                        (uint64_t)ranks * TSR__NEXT_FEATURES * WIDTH),
          "a cache of %" PRIu64 " bytes", cache);
    OK(open_within(planned, &model));
    OK(tsr_model_get_stats(model, &stats));
    CHECK(stats.weight_bytes == with[my_rank].weight_bytes, "%" PRIu64 " bytes, not %" PRIu64,
          stats.weight_bytes, with[my_rank].weight_bytes);
    tsr_model_close(&model);
    const tsr_status status = open_within(planned - 1, &other);
    CHECK(status == TSR_ERR_DEVICE_MEMORY, "%s: %s", tsr_status_name(status), tsr_last_error());
    tsr_model_file_close(&file);
}

CASE(next_memory, "draft: a model's own layer has the memory of its plan")
{
    static const char text[] =
        "model: next_token is set, but this model of architecture qwen3_5_text has no layers "
        "that predict further tokens";
    tsr_model_file *file = NULL;
    tsr_model_rank_plan plans[4];
    tsr_model *other = NULL;
    if (ranks <= 2) { /* as many as kv heads */
        check_memory(5 * WIDTH + 2 * 8, 2 * 2 * 8, 1);
        kind = NEXT_LATENT; /* latents, and their projections, are on all ranks */
        check_memory(5 * WIDTH + 12 + 16 + (12 + 16 + 4) * WIDTH + 4 * WIDTH + 4, 16 + 4, ranks);
        kind = NEXT_ATTENTION;
    }
    for (int r = 0; r < 4; r++)
        plans[r] = TSR_INIT(tsr_model_rank_plan);
    OK(next_open_file(kind, false, &file));
    FAILS(tsr_model_plan(file,
                         tsr_model_plan_params(.ranks = 1, .context = CONTEXT, .next_token = true),
                         NULL, plans, NULL),
          TSR_ERR_INVALID, text);
    FAILS(tsr_model_open(file, tsr_model_params(.group = group, .next_token = true), &other),
          TSR_ERR_INVALID, text);
    tsr_model_file_close(&file);
}
