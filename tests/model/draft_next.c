/* Tests drafts of a model's own layer that predicts further tokens: they are those of a computation
 * in double precision, texts are those without drafts, and memory is that of the plan. */
#include <inttypes.h>

#include "base/fault.h"
#include "model/file.h"
#include "model/generate/draft.h"
#include "model/model.h"
#include "model/open.h"
#include "model/weights/random.h"
#include "parallel/spmd.h"

enum {
    SEQUENCES = 4,
    VOCABULARY = 96,
    CONTEXT = 256,
    SEED = 3,
    DRAFTS = 4,
    MOST_IDS = 160,
    WIDTH = 32, /* these are of open_delta */
    HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 8,
    HIDDEN = 48
};
#define NORM_EPSILON 1e-6
#define JOIN                                                                                       \
    8 /* of the embedding: the layer then mostly predicts what follows the token itself            \
       */

static tsr_model *model;

static tsr_status open_next(uint64_t memory_bytes, tsr_model **out)
{
    return open_delta(VOCABULARY, CONTEXT, SEED,
                      tsr_model_params(.group = group, .next_token = true, .context = CONTEXT,
                                       .sequences = SEQUENCES, .memory_bytes = memory_bytes),
                      out);
}

/* Opens the model, and adds JOIN times the embedding to the join. */
static void open_joined(void)
{
    OK(open_next(0, &model));
    const tsr_parameter *p = tsr_layer_parameter(model->stack->next.join, 0);
    double *values = values_of(p->tensor);
    for (int64_t r = 0; r < p->length; r++)
        values[r * 2 * WIDTH + p->offset + r] += JOIN;
    tensor_put(p->tensor, values);
    free(values);
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

/* The layer in double precision -------------------------------------------------------------- */

static struct weights {
    float embedding[VOCABULARY * WIDTH], head[VOCABULARY * WIDTH], embedding_norm[WIDTH],
        hidden_norm[WIDTH], join[WIDTH * 2 * WIDTH], norm[WIDTH], norm1[WIDTH], norm2[WIDTH],
        q[2 * HEADS * HEAD_DIM * WIDTH], k[KV_HEADS * HEAD_DIM * WIDTH],
        v[KV_HEADS * HEAD_DIM * WIDTH], o[WIDTH * HEADS * HEAD_DIM], q_norm[HEAD_DIM],
        k_norm[HEAD_DIM], gate[HIDDEN * WIDTH], up[HIDDEN * WIDTH], down[WIDTH * HIDDEN];
} weights;

/* Reads a tensor by its name in Hugging Face's files. */
static void read_weight(const tsr_model_file *file, const char *name, size_t size, float *out)
{
    const tsr_shard_param *p = tsr__model_files_find(&file->files, name);
    CHECK(p && p->count * sizeof *out == size, "%s: %" PRIu64 " numbers for %zu bytes", name,
          p ? p->count : 0, size);
    tsr__random_read(file->files.random, p, 0, size, out);
}

static void read_weights(void)
{
    tsr_model_file *file = NULL;
    OK(open_delta_file(VOCABULARY, CONTEXT, SEED, tsr_model_params(.next_token = true), &file));
#define READ(name, member) read_weight(file, name ".weight", sizeof weights.member, weights.member)
    READ("model.embed_tokens", embedding);
    READ("lm_head", head);
    READ("mtp.pre_fc_norm_embedding", embedding_norm);
    READ("mtp.pre_fc_norm_hidden", hidden_norm);
    READ("mtp.fc", join);
    READ("mtp.norm", norm);
    READ("mtp.layers.0.input_layernorm", norm1);
    READ("mtp.layers.0.post_attention_layernorm", norm2);
    READ("mtp.layers.0.self_attn.q_proj", q);
    READ("mtp.layers.0.self_attn.k_proj", k);
    READ("mtp.layers.0.self_attn.v_proj", v);
    READ("mtp.layers.0.self_attn.o_proj", o);
    READ("mtp.layers.0.self_attn.q_norm", q_norm);
    READ("mtp.layers.0.self_attn.k_norm", k_norm);
    READ("mtp.layers.0.mlp.gate_proj", gate);
    READ("mtp.layers.0.mlp.up_proj", up);
    READ("mtp.layers.0.mlp.down_proj", down);
    for (int i = 0; i < WIDTH; i++)
        weights.join[i * 2 * WIDTH + i] += JOIN;
    tsr_model_file_close(&file);
}

/* y = x / rms(x) · (1 + weight) */
static void norm(int count, const double *x, const float *weight, double *y)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < count; i++)
        y[i] = x[i] / sqrt(sum / count + NORM_EPSILON) * (1 + (double)weight[i]);
}

static void multiply(int rows, int columns, const float *w, const double *x, double *y)
{
    for (int r = 0; r < rows; r++) {
        y[r] = 0;
        for (int c = 0; c < columns; c++)
            y[r] += (double)w[r * columns + c] * x[c];
    }
}

static void rotate(int place, double *x)
{
    for (int i = 0; i < HEAD_DIM / 2; i++) {
        const double angle = place * pow(10000, -2.0 * i / HEAD_DIM), a = x[i],
                     b = x[i + HEAD_DIM / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + HEAD_DIM / 2] = b * cos(angle) + a * sin(angle);
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static struct places {
    double k[CONTEXT][KV_HEADS][HEAD_DIM], v[CONTEXT][KV_HEADS][HEAD_DIM];
} places;

/* Computes attention at a place, whose keys and values become known, and adds it to x. */
static void attend(int place, double *x)
{
    double normed[WIDTH], q[2 * HEADS * HEAD_DIM], k[KV_HEADS * HEAD_DIM], v[KV_HEADS * HEAD_DIM],
        out[HEADS * HEAD_DIM] = {0}, added[WIDTH], scores[CONTEXT];
    norm(WIDTH, x, weights.norm1, normed);
    multiply(2 * HEADS * HEAD_DIM, WIDTH, weights.q, normed, q);
    multiply(KV_HEADS * HEAD_DIM, WIDTH, weights.k, normed, k);
    multiply(KV_HEADS * HEAD_DIM, WIDTH, weights.v, normed, v);
    for (int h = 0; h < KV_HEADS; h++) {
        norm(HEAD_DIM, k + (size_t)h * HEAD_DIM, weights.k_norm, places.k[place][h]);
        rotate(place, places.k[place][h]);
        memcpy(places.v[place][h], v + (size_t)h * HEAD_DIM, sizeof places.v[place][h]);
    }
    for (int h = 0; h < HEADS; h++) {
        double query[HEAD_DIM], sum = 0;
        const double *gate = q + (size_t)(2 * h + 1) * HEAD_DIM;
        const int kv = h / (HEADS / KV_HEADS);
        norm(HEAD_DIM, q + (size_t)(2 * h) * HEAD_DIM, weights.q_norm, query);
        rotate(place, query);
        for (int p = 0; p <= place; p++) {
            double score = 0;
            for (int i = 0; i < HEAD_DIM; i++)
                score += query[i] * places.k[p][kv][i];
            scores[p] = exp(score / sqrt(HEAD_DIM));
            sum += scores[p];
        }
        for (int p = 0; p <= place; p++)
            for (int i = 0; i < HEAD_DIM; i++)
                out[h * HEAD_DIM + i] += scores[p] / sum * places.v[p][kv][i] * sigmoid(gate[i]);
    }
    multiply(WIDTH, HEADS * HEAD_DIM, weights.o, out, added);
    for (int i = 0; i < WIDTH; i++)
        x[i] += added[i];
}

/* Computes the layer at a place, from the model's or its own output `hidden`, which becomes its
 * output there, and the token that follows. Returns the token that it predicts. */
static int32_t predict(int place, int32_t token, double *hidden, double *gap)
{
    double both[2 * WIDTH], x[WIDTH], normed[WIDTH], gate[HIDDEN], up[HIDDEN], added[WIDTH],
        logits[VOCABULARY];
    int32_t best = 0;
    for (int i = 0; i < WIDTH; i++) /* the norm takes out the scale of embeddings */
        x[i] = 100 * (double)weights.embedding[token * WIDTH + i];
    norm(WIDTH, x, weights.embedding_norm, both);
    norm(WIDTH, hidden, weights.hidden_norm, both + WIDTH);
    multiply(WIDTH, 2 * WIDTH, weights.join, both, x);
    attend(place, x);
    norm(WIDTH, x, weights.norm2, normed);
    multiply(HIDDEN, WIDTH, weights.gate, normed, gate);
    multiply(HIDDEN, WIDTH, weights.up, normed, up);
    for (int i = 0; i < HIDDEN; i++)
        up[i] *= gate[i] * sigmoid(gate[i]);
    multiply(WIDTH, HIDDEN, weights.down, up, added);
    for (int i = 0; i < WIDTH; i++)
        x[i] += added[i];
    norm(WIDTH, x, weights.norm, hidden);
    multiply(VOCABULARY, WIDTH, weights.head, hidden, logits);
    for (int i = 1; i < VOCABULARY; i++)
        best = logits[i] > logits[best] ? i : best;
    *gap = INFINITY;
    for (int i = 0; i < VOCABULARY; i++)
        *gap = i == best || logits[best] - logits[i] > *gap ? *gap : logits[best] - logits[i];
    return best;
}

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
        drafts[0] = predict(p - begin, ids[p + 1], hidden, &gap);
    }
    int certain = gap > 1e-2;
    for (int t = 1; t < DRAFTS; t++) {
        drafts[t] = predict(count - 2 - begin + t, drafts[t - 1], hidden, &gap);
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

/* The layer knows a piece that is found in the prefix cache, unless it has left the layer's cache.
 */
CASE(next_drafts, "draft: a model's own layer predicts what double precision does")
{
    int compared = 0, found = 0;
    open_joined();
    read_weights();
    for (int prompt = ranks == 1 ? 1 : 24; prompt < 40; prompt += 23) { /* 1 and 24 tokens */
        tsr_generator *generator = generator_of(true, false, 0, 0);
        compared += compare_drafts(generator, 0, prompt);
        tsr_generator_destroy(&generator);
    }
    tsr_generator *generator = generator_of(true, false, 64, 0);
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            tsr__drafts_forget_prefixes(generator);
        found += compare_drafts(generator, i < 2 ? 0 : 64, 70);
        CHECK(generator->drafts->found_tokens == (i == 0 ? 0 : 64), "%d: %" PRId64 " tokens found",
              i, generator->drafts->found_tokens);
    }
    tsr_generator_destroy(&generator);
    CHECK(compared > 5 && found > 15, "only %d and %d drafts", compared, found);
    tsr_model_close(&model);
}

/* Texts -------------------------------------------------------------------------------------- */

/* With states, a pause in which features are only kept, texts that wait, for which drafts are
 * dropped, and the prefix cache. */
CASE(next_exact, "draft: texts are the same with drafts of a model's own layer")
{
    static const tsr_sampling_params samplings[] = {
        {.temperature = 0}, {.temperature = 0.5, .seed = 9}, {.temperature = 0.5, .seed = 4}};
    static texts want, got;
    open_joined();
    for (int p = 0; p < 3; p++) {
        const bool waits = p == 2;
        if (p == 1 && ranks > 1)
            continue;
        tsr_sampling_params sampling = samplings[p];
        sampling.struct_size = sizeof sampling;
        for (int drafts = 0; drafts < 2; drafts++) {
            tsr_generator *generator = generator_of(drafts, false, waits ? 64 : 0, waits ? 384 : 0);
            for (int s = 0; s < SEQUENCES; s++)
                add_text(generator, s, waits ? 136 + s : 1 + 9 * s, p == 1 ? 65 : 20, &sampling);
            finish(generator, p == 1 ? 36 : 0, drafts ? &got : &want);
        }
        compare(&got, &want, waits ? "waits" : p == 1 ? "drawn" : "greedy");
        CHECK(got.stats.accepted_tokens > (waits ? 2 : got.stats.drafted_tokens / 16) &&
                  got.stats.drafted_passes > 10,
              "%d: %" PRIu64 " of %" PRIu64 " drafts were right in %" PRIu64 " passes", p,
              got.stats.accepted_tokens, got.stats.drafted_tokens, got.stats.drafted_passes);
        CHECK(!waits || (got.stats.preemptions > 0 && got.stats.cached_tokens > 0),
              "%" PRIu64 " waited, %" PRIu64 " tokens found", got.stats.preemptions,
              got.stats.cached_tokens);
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

/* Generates a text, of which a piece is kept, while the nth allocation or Vulkan call fails. A step
 * that fails has not given tokens; after the sequence has been removed, the next text is the same
 * as without failures. Returns whether the event was reached. */
static bool fails_at(tsr_generator *generator, tsr__fault_kind kind, uint64_t nth,
                     const texts *want)
{
    tsr_generated some[SEQUENCES];
    int count = 0, given = 0;
    add_text(generator, 0, 70, want->count[0], NULL);
    tsr__fault_arm(kind, nth, -1 /* VK_ERROR_OUT_OF_HOST_MEMORY */);
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

/* Memory and mistakes ------------------------------------------------------------------------ */

CASE(next_memory, "draft: a model's own layer has the memory of its plan")
{
    tsr_model_file *file = NULL;
    tsr_model_rank_plan with[4], without[4];
    tsr_model *other = NULL;
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    char text[256];
    for (int r = 0; r < 4; r++)
        with[r] = without[r] = TSR_INIT(tsr_model_rank_plan);
    OK(open_delta_file(VOCABULARY, CONTEXT, SEED, tsr_model_params(.next_token = true), &file));
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
    /* Norms are on all ranks; the features that wait, too; and with fewer kv heads than ranks, all
     * of these. */
    const uint64_t norms = (5 * WIDTH + 2 * HEAD_DIM) * sizeof(float),
                   all =
                       tsr_model_config_parameters(tsr_model_file_config(file), 3) * sizeof(float);
    CHECK(ranks > KV_HEADS || more == all + (uint64_t)(ranks - 1) * norms,
          "%" PRIu64 " bytes, not %" PRIu64, more, all);
    CHECK(ranks > KV_HEADS || cache == sizeof(float) * SEQUENCES *
                                           ((uint64_t)2 * CONTEXT * KV_HEADS * HEAD_DIM +
                                            (uint64_t)ranks * TSR__NEXT_FEATURES * WIDTH),
          "a cache of %" PRIu64 " bytes", cache);
    OK(open_delta(VOCABULARY, CONTEXT, SEED,
                  tsr_model_params(.group = group, .next_token = true, .context = CONTEXT,
                                   .sequences = SEQUENCES, .memory_bytes = planned,
                                   .cache_dtype = TSR_F32),
                  &model));
    OK(tsr_model_get_stats(model, &stats));
    CHECK(stats.weight_bytes == with[my_rank].weight_bytes, "%" PRIu64 " bytes, not %" PRIu64,
          stats.weight_bytes, with[my_rank].weight_bytes);
    tsr_model_close(&model);
    const tsr_status status =
        open_delta(VOCABULARY, CONTEXT, SEED,
                   tsr_model_params(.group = group, .next_token = true, .context = CONTEXT,
                                    .sequences = SEQUENCES, .memory_bytes = planned - 1,
                                    .cache_dtype = TSR_F32),
                   &other);
    CHECK(status == TSR_ERR_DEVICE_MEMORY, "%s: %s", tsr_status_name(status), tsr_last_error());
    params.ranks = params.stages = 2;
    FAILS(tsr_model_plan(file, &params, NULL, with, NULL), TSR_ERR_INVALID,
          "model: next_token is set, but there are 2 stages; only 1 is possible");
    tsr_model_file_close(&file);
    OK(open_delta_file(VOCABULARY, CONTEXT, SEED, tsr_model_params(.next_token = false), &file));
    params.ranks = params.stages = 1;
    snprintf(text, sizeof text,
             "model: next_token is set, but this model of architecture qwen3_5_text has no layers "
             "that predict further tokens");
    FAILS(tsr_model_plan(file, &params, NULL, with, NULL), TSR_ERR_INVALID, text);
    FAILS(tsr_model_open(file, tsr_model_params(.group = group, .next_token = true), &other),
          TSR_ERR_INVALID, text);
    tsr_model_file_close(&file);
}
