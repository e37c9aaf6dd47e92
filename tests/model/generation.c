/* Tests generators: sequences together and alone, the choice of tokens, the ends of sequences,
 * interrupts, and refused calls. */
#include <math.h>

#include "base/fault.h"
#include "model/made.h"
#include "model/open.h"
#include "parallel/spmd.h"
#include "support/struct_sizes.h"

enum { SEQUENCES = 4, MOST = 40, SEED = 5 };

static made_model made;
static tsr_model *model;

static void open_made(void)
{
    made_init(&made, &made_families[3], SEED);
    OK(open_model(made_write_hf(&made), NULL, &model));
}

static void close_made(void)
{
    tsr_model_close(&model);
    made_finish(&made);
}

static tsr_generator *generator_of(int sequences, bool log_probabilities)
{
    tsr_generator *generator = NULL;
    OK(tsr_generator_create(tsr_generator_params(.model = model, .sequences = sequences,
                                                 .prefill = 4,
                                                 .log_probabilities = log_probabilities),
                            &generator));
    return generator;
}

static void prompt_of(int number_of, int32_t *ids, int64_t *count)
{
    *count = 1 + 5 * number_of;
    for (int64_t i = 0; i < *count; i++)
        ids[i] = (int32_t)((number(100 + (uint64_t)number_of, i) + 1) / 2 * MADE_VOCABULARY);
}

static int add_sequence(tsr_generator *generator, int which, const tsr_sampling_params *sampling)
{
    int32_t ids[MOST];
    int64_t count;
    int sequence;
    prompt_of(which, ids, &count);
    OK(tsr_generator_add(generator,
                         tsr_sequence_params(.prompt = ids, .prompt_count = count,
                                             .sampling = sampling, .number = (uint64_t)which,
                                             .max_tokens = 12),
                         &sequence));
    return sequence;
}

/* The tokens that a sequence has generated, and why it has ended. */
typedef struct text {
    int32_t tokens[MOST];
    int count;
    tsr_finish finish;
} text;

static void take(text *texts, const int *which, int count, const tsr_generated *tokens)
{
    for (int i = 0; i < count; i++) {
        text *t = &texts[which[tokens[i].sequence]];
        CHECK(!(tokens[i].log_probability > 0) && t->count < MOST, "token %d", t->count);
        CHECK(t->finish == TSR_FINISH_NONE, "an ended sequence goes on");
        t->tokens[t->count++] = tokens[i].token;
        t->finish = tokens[i].finish;
    }
}

static void alone(int which, const tsr_sampling_params *sampling, text *out)
{
    tsr_generator *generator = generator_of(1, false);
    tsr_generated token;
    const int number_of[1] = {0};
    int count = 1;
    *out = (text){0};
    add_sequence(generator, which, sampling);
    while (count > 0) {
        OK(step_tokens(generator, &token, &count));
        CHECK(count == 0 || isnan(token.log_probability), "%g", token.log_probability);
        take(out, number_of, count, &token);
    }
    CHECK(out->count == 12 && out->finish == TSR_FINISH_MAX_TOKENS, "%d tokens, %s", out->count,
          tsr_finish_name(out->finish));
    tsr_generator_destroy(&generator);
}

/* Adds sequences while others run. Sequence 0 is removed when it has ended, and the last sequence
 * gets its number. */
static void together(const tsr_sampling_params *sampling, text texts[SEQUENCES])
{
    tsr_generator *generator = generator_of(SEQUENCES - 1, true);
    tsr_generated tokens[SEQUENCES];
    int which[SEQUENCES], count = 1, added = 0, step = 0;
    memset(texts, 0, SEQUENCES * sizeof *texts);
    while (count > 0) {
        if (step % 3 == 0 && added < SEQUENCES - 1) {
            const int sequence = add_sequence(generator, added, sampling);
            which[sequence] = added++;
        }
        OK(step_tokens(generator, tokens, &count));
        for (int i = 0; i < count; i++)
            CHECK(tokens[i].log_probability <= 0, "%g", tokens[i].log_probability);
        take(texts, which, count, tokens);
        if (texts[0].finish != TSR_FINISH_NONE && added == SEQUENCES - 1) {
            OK(tsr_generator_remove(generator, 0));
            CHECK(add_sequence(generator, added, sampling) == 0, "not the free number");
            which[0] = added++;
        }
        step++;
    }
    CHECK(added == SEQUENCES, "%d sequences", added);
    tsr_generator_destroy(&generator);
}

static void compare(const tsr_sampling_params *sampling)
{
    static text texts[SEQUENCES], one;
    together(sampling, texts);
    for (int s = 0; s < SEQUENCES; s++) {
        alone(s, sampling, &one);
        CHECK(one.count == texts[s].count, "%d tokens, not %d", texts[s].count, one.count);
        for (int i = 0; i < one.count; i++)
            CHECK(one.tokens[i] == texts[s].tokens[i], "token %d of sequence %d is %d, not %d", i,
                  s, (int)texts[s].tokens[i], (int)one.tokens[i]);
    }
}

CASE(batches, "generation: a sequence gets in a batch what it gets alone")
{
    open_made();
    compare(tsr_sampling_params(.seed = 0));
    compare(tsr_sampling_params(.temperature = 1, .top_k = 20, .seed = 9));
    close_made();
}

/* Drawing tokens ----------------------------------------------------------------------------- */

typedef struct logits_seen {
    float last[MADE_VOCABULARY];
    int64_t position;
} logits_seen;

static void see(void *user, int sequence, int64_t position, const float *logits)
{
    logits_seen *seen = user;
    CHECK(sequence == 0, "sequence %d", sequence);
    memcpy(seen->last, logits, sizeof seen->last);
    seen->position = position;
}

/* Every rank draws the token itself from the logits that it sees. All ranks see the same bits, so
 * they draw the same tokens. */
CASE(draws, "generation: tokens are those that any rank draws from the logits")
{
    tsr_generator *generator = NULL;
    tsr_generated token;
    logits_seen seen;
    int32_t ids[MOST], want;
    int64_t prompt;
    int sequence, count = 1;
    const tsr_sampling_params sampling = {.struct_size = sizeof sampling,
                                          .temperature = 2,
                                          .top_p = 0.9,
                                          .repetition_penalty = 1.2,
                                          .seed = 123456789};
    open_made();
    prompt_of(2, ids, &prompt);
    OK(tsr_generator_create(tsr_generator_params(.model = model, .logits = see, .user = &seen,
                                                 .logits_positions = MOST),
                            &generator));
    OK(tsr_generator_add(generator,
                         tsr_sequence_params(.prompt = ids, .prompt_count = prompt,
                                             .sampling = &sampling, .number = 77, .max_tokens = 15),
                         &sequence));
    for (int64_t length = prompt;; length++) {
        OK(step_tokens(generator, &token, &count));
        if (count == 0)
            break;
        CHECK(seen.position == length - 1 && token.position == length, "position %d",
              (int)token.position);
        OK(tsr_sampling_draw(&sampling, 77, length, MADE_VOCABULARY, seen.last, length, ids,
                             &want));
        CHECK(token.token == want, "token %d, not %d", (int)token.token, (int)want);
        ids[length] = want;
    }
    tsr_generator_destroy(&generator);
    close_made();
}

static int add_with(tsr_generator *generator, const tsr_sequence_params *params)
{
    int sequence;
    OK(tsr_generator_add(generator, params, &sequence));
    return sequence;
}

/* One sequence wants log-probabilities and the most likely tokens; another has a bias and a penalty
 * that must not change those of the first. */
CASE(tops, "generation: log-probabilities of single sequences, biases, penalties")
{
    enum { TOP = 5, LENGTH = 8 };
    static const tsr_logit_bias biases[] = {{7, 1000}};
    tsr_generated tokens[2];
    int32_t ids[MOST];
    int64_t prompt;
    int count, sevens = 0;
    open_made();
    prompt_of(2, ids, &prompt);
    tsr_generator *generator = generator_of(2, false), *all = generator_of(1, true);
    add_with(generator,
             tsr_sequence_params(.prompt = ids, .prompt_count = prompt, .log_probabilities = true,
                                 .top_log_probabilities = TOP, .max_tokens = LENGTH));
    add_with(generator,
             tsr_sequence_params(.prompt = ids, .prompt_count = prompt, .max_tokens = LENGTH,
                                 .sampling = tsr_sampling_params(.biases = biases, .bias_count = 1,
                                                                 .frequency_penalty = 300)));
    add_with(all, tsr_sequence_params(.prompt = ids, .prompt_count = prompt, .max_tokens = LENGTH));
    for (int i = 0; i < LENGTH; i++) {
        tsr_generated want;
        OK(step_tokens(generator, tokens, &count));
        CHECK(count == 2, "%d tokens", count);
        const tsr_log_probability *top = tokens[0].top;
        CHECK(tokens[0].top_count == TOP && top[0].token == tokens[0].token &&
                  top[0].log_probability == tokens[0].log_probability,
              "token %d is not the most likely one", i);
        for (int k = 1; k < TOP; k++)
            CHECK(top[k].log_probability <= top[k - 1].log_probability &&
                      top[k].token != top[k - 1].token,
                  "top %d", k);
        CHECK(isnan(tokens[1].log_probability) && tokens[1].top_count == 0 && !tokens[1].top,
              "a sequence that wants none has a log-probability");
        sevens += tokens[1].token == 7;
        OK(step_tokens(all, &want, &count));
        CHECK(want.token == tokens[0].token &&
                  fabs(want.log_probability - tokens[0].log_probability) < 1e-4,
              "token %d: %g, not %g", i, tokens[0].log_probability, want.log_probability);
    }
    CHECK(sevens >= 3 && sevens <= 4, "%d times the token with a bias", sevens);
    tsr_generator_destroy(&all);
    tsr_generator_destroy(&generator);
    close_made();
}

/* The ends of sequences ---------------------------------------------------------------------- */

/* Makes steps until all sequences have ended, and returns the last token. *steps is the number of
 * steps that gave tokens. */
static tsr_generated last_of(tsr_generator *generator, int *steps)
{
    tsr_generated token = {0}, last = {0};
    int count = 1;
    for (*steps = -1; count > 0; ++*steps) {
        last = token;
        OK(step_tokens(generator, &token, &count));
    }
    return last;
}

static void check_end(const tsr_sequence_params *params, tsr_finish finish, int tokens)
{
    tsr_generator *generator = NULL;
    int steps, sequence;
    OK(tsr_generator_create(tsr_generator_params(.model = model, .context = 16), &generator));
    OK(tsr_generator_add(generator, params, &sequence));
    const tsr_generated last = last_of(generator, &steps);
    CHECK(last.finish == finish && steps == tokens, "%s after %d tokens, not %s after %d",
          tsr_finish_name(last.finish), steps, tsr_finish_name(finish), tokens);
    tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
    OK(tsr_generator_get_stats(generator, &stats));
    CHECK(stats.prompt_tokens == (uint64_t)params->prompt_count &&
              stats.generated_tokens == (uint64_t)steps - 1,
          "%d and %d tokens", (int)stats.prompt_tokens, (int)stats.generated_tokens);
    tsr_generator_destroy(&generator);
}

CASE(ends, "generation: stop tokens, the largest number of tokens, a full context")
{
    text one;
    int32_t ids[MOST];
    int64_t prompt;
    open_made();
    prompt_of(1, ids, &prompt);
    alone(1, tsr_sampling_params(.seed = 0), &one);
    int first = 0; /* where the fourth token occurs first */
    while (one.tokens[first] != one.tokens[3])
        first++;
    check_end(tsr_sequence_params(.prompt = ids, .prompt_count = prompt, .max_tokens = 3),
              TSR_FINISH_MAX_TOKENS, 3);
    check_end(tsr_sequence_params(.prompt = ids, .prompt_count = prompt, .max_tokens = 11),
              TSR_FINISH_MAX_TOKENS, 11);
    check_end(tsr_sequence_params(.prompt = ids, .prompt_count = prompt), TSR_FINISH_CONTEXT, 11);
    check_end(tsr_sequence_params(.prompt = ids, .prompt_count = prompt, .max_tokens = 12),
              TSR_FINISH_CONTEXT, 11);
    check_end(tsr_sequence_params(.prompt = ids, .prompt_count = prompt, .stop = &one.tokens[3],
                                  .stop_count = 1),
              TSR_FINISH_TOKEN, first + 1);
    close_made();
}

/* Makes steps until the only sequence has ended, appends its tokens to ids[*length …], and checks
 * how many tokens of prompts were computed in total. */
static tsr_finish extend(tsr_generator *generator, int32_t *ids, int64_t *length, uint64_t computed)
{
    tsr_generated token = {0};
    tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
    int count = 1;
    while (count > 0) {
        OK(step_tokens(generator, &token, &count));
        if (count > 0 && token.token >= 0) {
            CHECK(token.position == *length, "position %d", (int)token.position);
            ids[(*length)++] = token.token;
        }
    }
    OK(tsr_generator_get_stats(generator, &stats));
    CHECK(stats.prompt_tokens == computed, "%d tokens of prompts, not %d", (int)stats.prompt_tokens,
          (int)computed);
    return token.finish;
}

/* A sequence that is continued gets the same tokens as a sequence with its whole text as the
 * prompt. */
CASE(continuing, "generation: an ended sequence goes on with more tokens")
{
    static const int32_t more[] = {7, 8, 9, 10, 11};
    int32_t ids[65], again[65]; /* a full context and the token after it */
    int64_t length, prompt;
    int sequence;
    open_made();
    const tsr_sampling_params sampling = {
        .struct_size = sizeof sampling, .temperature = 1, .top_k = 20, .seed = 9};
    tsr_generator *generator = generator_of(1, true);
    prompt_of(1, ids, &length);
    OK(tsr_generator_add(generator,
                         tsr_sequence_params(.prompt = ids, .prompt_count = length,
                                             .sampling = &sampling, .max_tokens = 4),
                         &sequence));
    FAILS(tsr_generator_continue(generator, sequence, 5, more, 3), TSR_ERR_INVALID,
          "generator: sequence 0 has not ended");
    const uint64_t first = (uint64_t)length;
    CHECK(extend(generator, ids, &length, first) == TSR_FINISH_MAX_TOKENS, "another end");
    OK(tsr_generator_continue(generator, sequence, 5, more, 6));
    memcpy(ids + length, more, sizeof more);
    prompt = length += 5;
    /* The last token that was generated is not in the cache yet, so the next prefill must compute
     * it, too. */
    CHECK(extend(generator, ids, &length, first + 6) == TSR_FINISH_MAX_TOKENS, "another end");
    CHECK(length == prompt + 6, "%d tokens", (int)(length - prompt));
    memcpy(again, ids, sizeof again);
    tsr_generator *other = generator_of(1, true);
    OK(tsr_generator_add(other,
                         tsr_sequence_params(.prompt = ids, .prompt_count = prompt,
                                             .sampling = &sampling, .max_tokens = 6),
                         &sequence));
    int64_t whole = prompt;
    extend(other, again, &whole, (uint64_t)prompt);
    for (int64_t i = prompt; i < length; i++)
        CHECK(again[i] == ids[i], "token %d is %d, not %d", (int)i, (int)ids[i], (int)again[i]);
    /* The sequence is continued after an interrupt, and then until the context is full. */
    OK(tsr_generator_continue(generator, sequence, 1, more, 0));
    if (my_rank == ranks - 1)
        tsr_generator_interrupt(generator);
    length++;
    extend(generator, ids, &length, first + 8);
    OK(tsr_generator_continue(generator, sequence, 2, more, 0));
    length += 2;
    CHECK(extend(generator, ids, &length, first + 10) == TSR_FINISH_CONTEXT, "another end");
    FAILS(tsr_generator_continue(generator, sequence, 1, more, 1), TSR_ERR_INVALID,
          "generator: the sequence has 65 tokens and gets 1, but the context has only 64");
    tsr_generator_destroy(&other);
    tsr_generator_destroy(&generator);
    close_made();
}

CASE(end_tokens, "generation: the model's own tokens that end a text")
{
    text one;
    int32_t ids[MOST];
    int64_t prompt;
    char json[96];
    open_made();
    prompt_of(1, ids, &prompt);
    alone(1, tsr_sampling_params(.seed = 0), &one);
    int first = 0;
    while (one.tokens[first] != one.tokens[3])
        first++;
    close_made();
    made_family family = made_families[3];
    snprintf(json, sizeof json, "%s, \"eos_token_id\": %d", family.json, (int)one.tokens[3]);
    family.json = json;
    made_init(&made, &family, SEED);
    OK(open_model(made_write_hf(&made), NULL, &model));
    const tsr_sequence_params with = {.struct_size = sizeof with,
                                      .prompt = ids,
                                      .prompt_count = prompt},
                              without = {.struct_size = sizeof without,
                                         .prompt = ids,
                                         .prompt_count = prompt,
                                         .ignore_end = true};
    check_end(&with, TSR_FINISH_TOKEN, first + 1);
    check_end(&without, TSR_FINISH_CONTEXT, 11);
    close_made();
}

CASE(interrupts, "generation: an interrupt on one rank ends all sequences on all ranks")
{
    tsr_generated tokens[2];
    int count;
    open_made();
    tsr_generator *generator = generator_of(2, true);
    add_sequence(generator, 0, tsr_sampling_params(.seed = 0));
    add_sequence(generator, 3, tsr_sampling_params(.seed = 0));
    OK(step_tokens(generator, tokens, &count));
    CHECK(count == 2 && tokens[0].token >= 0 && tokens[1].token >= 0, "%d tokens", count);
    if (my_rank == ranks - 1)
        tsr_generator_interrupt(generator);
    OK(step_tokens(generator, tokens, &count));
    CHECK(count == 2, "%d tokens", count);
    for (int i = 0; i < 2; i++)
        CHECK(tokens[i].token == -1 && tokens[i].finish == TSR_FINISH_INTERRUPT, "%d, %s",
              (int)tokens[i].token, tsr_finish_name(tokens[i].finish));
    OK(step_tokens(generator, tokens, &count));
    CHECK(count == 0, "%d tokens", count);
    /* An interrupt must end the processing of a prompt between two of its passes. */
    OK(tsr_generator_remove(generator, 1));
    add_sequence(generator, 3, tsr_sampling_params(.seed = 0));
    if (my_rank == 0)
        tsr_generator_interrupt(generator);
    OK(step_tokens(generator, tokens, &count));
    CHECK(count == 1 && tokens[0].finish == TSR_FINISH_INTERRUPT, "%d tokens", count);
    /* An interrupt that comes after the end of all sequences must not end the next sequence. */
    tsr_generator_interrupt(generator);
    OK(step_tokens(generator, tokens, &count));
    CHECK(count == 0, "%d tokens", count);
    OK(tsr_generator_remove(generator, 1));
    add_sequence(generator, 3, tsr_sampling_params(.seed = 0));
    OK(step_tokens(generator, tokens, &count));
    CHECK(count == 1 && tokens[0].token >= 0, "%d tokens, %s", count,
          tsr_finish_name(tokens[0].finish));
    tsr_generator_destroy(&generator);
    close_made();
}

/* Refused calls ------------------------------------------------------------------------------ */

static void continuing_mistakes(tsr_generator *generator, int sequence)
{
    int32_t ids[2] = {1, MADE_VOCABULARY};
    int steps;
    tsr_generator_interrupt(generator);
    last_of(generator, &steps);
    FAILS(tsr_generator_continue(NULL, 0, 1, ids, 1), TSR_ERR_INVALID,
          "generator: generator is NULL");
    FAILS(tsr_generator_continue(generator, 1, 1, ids, 1), TSR_ERR_INVALID,
          "generator: there is no sequence 1");
    FAILS(tsr_generator_continue(generator, sequence, 0, ids, 1), TSR_ERR_INVALID,
          "generator: continuing needs at least one token; count is 0, and tokens is not NULL");
    FAILS(tsr_generator_continue(generator, sequence, 1, NULL, 1), TSR_ERR_INVALID,
          "generator: continuing needs at least one token; count is 1, and tokens is NULL");
    FAILS(tsr_generator_continue(generator, sequence, 2, ids, 1), TSR_ERR_INVALID,
          "generator: token 1 to append is 40; the vocabulary has 0 to 39");
    FAILS(tsr_generator_continue(generator, sequence, INT64_MAX, ids, 1), TSR_ERR_INVALID,
          "generator: the sequence has 3 tokens and gets 9223372036854775807, but the context has "
          "only 64");
    FAILS(tsr_generator_continue(generator, sequence, 1, ids, -1), TSR_ERR_INVALID,
          "generator: max_tokens is -1");
    tsr__fault_arm(TSR__FAULT_ALLOC, 0, 0);
    const tsr_status status = tsr_generator_continue(generator, sequence, 1, ids, 1);
    tsr__fault_disarm();
    CHECK(status == TSR_ERR_NO_MEMORY, "%s", tsr_status_name(status));
    OK(tsr_generator_continue(generator, sequence, 1, ids, 1));
}

/* Checks that a step fails on all ranks with a text that starts with these words. The rest of the
 * text is about this rank. */
static void all_fail(tsr_generator *generator, const char *words)
{
    tsr_generated tokens[2];
    int count;
    const tsr_status status = step_tokens(generator, tokens, &count);
    CHECK(status == TSR_ERR_INVALID && strncmp(tsr_last_error(), words, strlen(words)) == 0,
          "%s: \"%s\", not \"%s\"", tsr_status_name(status), tsr_last_error(), words);
    tsr_generator_destroy(&generator);
}

CASE(different, "generation: ranks that ask for different things all fail")
{
    enum {
        LENGTH,
        ID,
        SEED_OF_DRAW,
        NUMBER,
        MOST_TOKENS,
        STOP,
        PREFILL,
        SNAPSHOTS,
        CONTINUED,
        KINDS
    };
    static const char *const words[KINDS] = {
        [LENGTH] = "generator: not all ranks have the same prompts; the last one of this rank, of ",
        [ID] = "generator: not all ranks have the same prompts; the last one of this rank, of ",
        [SEED_OF_DRAW] = "generator: not all ranks choose tokens in the same way; sequence 1 of ",
        [NUMBER] = "generator: not all ranks choose tokens in the same way; sequence 1 of ",
        [MOST_TOKENS] = "generator: not all ranks end sequences in the same way; sequence 1 of ",
        [STOP] = "generator: not all ranks end sequences in the same way; sequence 1 of ",
        [PREFILL] = "generator: not all ranks have the same params; this one has sequences 2, ",
        [SNAPSHOTS] = "generator: not all ranks have the same params; this one has sequences 2, ",
        [CONTINUED] = "generator: not all ranks have the same prompts; the last one of ",
    };
    if (ranks == 1) {
        case_skip("1 rank");
        return;
    }
    open_made();
    for (int kind = 0; kind < KINDS; kind++) {
        tsr_generator *generator = NULL;
        const bool odd = my_rank == ranks - 1;
#define ODD(what) (odd && kind == (what))
        const int32_t ids[] = {1, 2, 3 + ODD(ID), 4, 5}, stop[] = {30 + ODD(STOP)},
                      more[] = {7 + ODD(CONTINUED), 8};
        tsr_generated tokens[2];
        int sequence, count;
        OK(tsr_generator_create(
            tsr_generator_params(.model = model, .sequences = 2, .prefill = 4 + ODD(PREFILL),
                                 .piece = kind == SNAPSHOTS ? 4 : 0,
                                 .prefix_cache = kind == SNAPSHOTS,
                                 .snapshots = kind == SNAPSHOTS ? 1 + ODD(SNAPSHOTS) : 0),
            &generator));
        OK(tsr_generator_add(generator, tsr_sequence_params(.prompt = ids, .prompt_count = 1),
                             &sequence));
        OK(tsr_generator_add(
            generator,
            tsr_sequence_params(.prompt = ids, .prompt_count = 5 - ODD(LENGTH),
                                .number = (uint64_t)ODD(NUMBER), .stop = stop, .stop_count = 1,
                                .sampling =
                                    tsr_sampling_params(.temperature = 1,
                                                        .seed = (uint64_t)ODD(SEED_OF_DRAW)),
                                .max_tokens = 1 + ODD(MOST_TOKENS)),
            &sequence));
        if (kind == CONTINUED) {
            OK(step_tokens(generator, tokens, &count));
            OK(tsr_generator_continue(generator, sequence, 2, more, 0));
        }
        all_fail(generator, words[kind]);
    }
    close_made();
}

CASE(mistakes, "generation: mistakes")
{
    tsr_generator *generator = NULL;
    tsr_generated tokens[1];
    int32_t ids[100] = {1, 2, MADE_VOCABULARY};
    int sequence = 0, count;
    open_made();
    FAILS(tsr_generator_create(NULL, &generator), TSR_ERR_INVALID, "generator: params is NULL");
    generator = generator_of(1, false);
    FAILS(tsr_generator_add(
              generator,
              tsr_sequence_params(.prompt = ids, .prompt_count = 2, .generated_count = 3),
              &sequence),
          TSR_ERR_INVALID, "generator: generated_count is 3 in a prompt of 2 tokens");
    FAILS(tsr_generator_add(
              generator,
              tsr_sequence_params(.prompt = ids, .prompt_count = 2, .top_log_probabilities = 1),
              &sequence),
          TSR_ERR_INVALID,
          "generator: top_log_probabilities is 1; 0 to 20 is possible, with log_probabilities");
    FAILS(tsr_generator_add(
              generator,
              tsr_sequence_params(.prompt = ids, .prompt_count = 2,
                                  .sampling = tsr_sampling_params(.bias_count = 1,
                                                                  .biases =
                                                                      (const tsr_logit_bias[]){
                                                                          {MADE_VOCABULARY, 1}})),
              &sequence),
          TSR_ERR_INVALID, "generator: token 0 with a bias is 40; the vocabulary has 0 to 39");
    tsr_generator_destroy(&generator);
    FAILS(tsr_generator_create(tsr_generator_params(.sequences = 1), &generator), TSR_ERR_INVALID,
          "generator: model is NULL");
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .sequences = -1), &generator),
          TSR_ERR_INVALID, "generator: sequences is -1; 1 to 4096 is possible");
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .context = -1), &generator),
          TSR_ERR_INVALID, "generator: context is -1; 1 to 1073741824 is possible");
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .prefill = -1), &generator),
          TSR_ERR_INVALID, "generator: prefill is -1; 1 to 1073741824 is possible");
    FAILS(
        tsr_generator_create(tsr_generator_params(.model = model, .cache_tokens = -1), &generator),
        TSR_ERR_INVALID,
        "generator: cache_tokens is -1, logits_positions 0; neither may be negative");
    /* If cache_tokens is more than the sequences can have, the cache gets no larger. */
    OK(tsr_generator_create(tsr_generator_params(.model = model, .cache_tokens = INT64_MAX),
                            &generator));
    tsr_generator_destroy(&generator);
    generator = generator_of(1, true);
    FAILS(tsr_generator_add(generator, tsr_sequence_params(.prompt = ids), &sequence),
          TSR_ERR_INVALID, "generator: the prompt is empty; at least one token is needed");
    FAILS(tsr_generator_add(generator, tsr_sequence_params(.prompt = ids, .prompt_count = 3),
                            &sequence),
          TSR_ERR_INVALID, "generator: token 2 of the prompt is 40; the vocabulary has 0 to 39");
    ids[2] = 0;
    FAILS(tsr_generator_add(generator, tsr_sequence_params(.prompt = ids, .prompt_count = 65),
                            &sequence),
          TSR_ERR_INVALID, "generator: the prompt has 65 tokens, but the context only 64");
    FAILS(tsr_generator_add(generator,
                            tsr_sequence_params(.prompt = ids, .prompt_count = 3,
                                                .sampling = tsr_sampling_params(.top_p = 2)),
                            &sequence),
          TSR_ERR_INVALID, "sampling: top_p is 2; 0 to 1 is possible");
    FAILS(tsr_generator_remove(generator, 0), TSR_ERR_INVALID, "generator: there is no sequence 0");
    OK(tsr_generator_add(generator, tsr_sequence_params(.prompt = ids, .prompt_count = 3),
                         &sequence));
    FAILS(tsr_generator_add(generator, tsr_sequence_params(.prompt = ids, .prompt_count = 3),
                            &sequence),
          TSR_ERR_INVALID, "generator: it has its largest number of sequences, 1");
    FAILS(tsr_generator_step(generator, NULL), TSR_ERR_INVALID, "generator: count is NULL");
    continuing_mistakes(generator, sequence);
    OK(tsr_generator_remove(generator, sequence));
    OK(step_tokens(generator, tokens, &count));
    CHECK(count == 0, "%d tokens", count);
    tsr_generator_destroy(&generator);
    close_made();
}

/* Structs of other sizes than the library's ---------------------------------------------------- */

static tsr_generator *sized;
static const char *sized_path;

static tsr_status create_by(void *given)
{
    tsr_generator *generator = NULL;
    const tsr_status status = tsr_generator_create(given, &generator);
    tsr_generator_destroy(&generator);
    return status;
}

static tsr_status add_by(void *given)
{
    int sequence;
    const tsr_status status = tsr_generator_add(sized, given, &sequence);
    return status == TSR_OK ? tsr_generator_remove(sized, sequence) : status;
}

static tsr_status add_with_sampling(void *given)
{
    tsr_sequence_params params = {.struct_size = sizeof params,
                                  .prompt = (const int32_t[]){1},
                                  .prompt_count = 1,
                                  .sampling = given};
    return add_by(&params);
}

static tsr_status stats_to(void *given)
{
    return tsr_generator_get_stats(sized, given);
}

static tsr_status model_stats_to(void *given)
{
    return tsr_model_get_stats(model, given);
}

static tsr_status open_by(void *given)
{
    tsr_model *opened = NULL;
    const tsr_status status = open_model(sized_path, given, &opened);
    tsr_model_close(&opened);
    return status;
}

CASE(sizes, "generation: structs that are shorter or longer than the library's")
{
    open_made();
    sized = generator_of(1, false);
    sized_path = made_write_hf(&made);
    const tsr_generator_params create = {
        .struct_size = sizeof create, .model = model, .sequences = 2};
    const tsr_sequence_params add = {
        .struct_size = sizeof add, .prompt = (const int32_t[]){1, 2}, .prompt_count = 2};
    const tsr_sampling_params sampling = {.struct_size = sizeof sampling, .temperature = 1};
    const tsr_model_params open = {.struct_size = sizeof open, .group = group};
    const struct_sizes_case cases[] = {
        {"tsr_generator_params", sizeof create, &create, offsetof(tsr_generator_params, context),
         false, create_by},
        {"tsr_sequence_params", sizeof add, &add, offsetof(tsr_sequence_params, sampling), false,
         add_by},
        {"tsr_sampling_params", sizeof sampling, &sampling, sizeof(size_t), false,
         add_with_sampling},
        {"tsr_generator_stats", sizeof(tsr_generator_stats), &TSR_INIT(tsr_generator_stats),
         2 * sizeof(size_t), true, stats_to},
        {"tsr_model_stats", sizeof(tsr_model_stats), &TSR_INIT(tsr_model_stats), 2 * sizeof(size_t),
         true, model_stats_to},
        {"tsr_model_params", sizeof open, &open, offsetof(tsr_model_params, dtype), false, open_by},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *problem = struct_sizes_problem(&cases[i]);
        CHECK(!problem, "%s", problem);
    }
    tsr_generator_destroy(&sized);
    close_made();
}

CASE(learned, "generation: learned positions limit the context")
{
    tsr_generator *generator = NULL;
    made_init(&made, &made_families[5], SEED);
    OK(open_model(made_write_hf(&made), NULL, &model));
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .context = 65), &generator),
          TSR_ERR_INVALID, "generator: context is 65, but the model has learned 64 positions");
    close_made();
}

CASE(nan_weights, "generation: weights that are NaN are an error on all ranks")
{
    tsr_generated tokens[1];
    int count;
    made_init(&made, &made_families[0], SEED);
    made_find(&made, "layers.0.mlp.down_proj.weight")->values[7] = NAN;
    OK(open_model(made_write_hf(&made), NULL, &model));
    tsr_generator *generator = generator_of(1, true);
    add_sequence(generator, 0, tsr_sampling_params(.seed = 0));
    const tsr_status status = step_tokens(generator, tokens, &count);
    CHECK(status == TSR_ERR_INVALID, "%s", tsr_status_name(status));
    const char *want = my_rank == 0 ? "generator: sequence 0, position 1: sampling: the logit of "
                                      "token 0 is NaN"
                                    : "generator: rank 0 could not choose a token";
    CHECK(strcmp(tsr_last_error(), want) == 0, "\"%s\"", tsr_last_error());
    tsr_generator_destroy(&generator);
    close_made();
}

/* Opens a model and generates from it, while the nth allocation or Vulkan call fails. Returns
 * whether there was such a call. */
static bool fails_at(const char *path, tsr__fault_kind kind, uint64_t nth)
{
    tsr_model *opened = NULL;
    tsr_generator *generator = NULL;
    tsr_generated token;
    const int32_t ids[3] = {1, 2, 3};
    int sequence, count;
    tsr__fault_arm(kind, nth, -1 /* VK_ERROR_OUT_OF_HOST_MEMORY */);
    tsr_status status = open_model(path, NULL, &opened);
    if (status == TSR_OK)
        status = tsr_generator_create(tsr_generator_params(.model = opened), &generator);
    if (status == TSR_OK)
        status = tsr_generator_add(generator, tsr_sequence_params(.prompt = ids, .prompt_count = 3),
                                   &sequence);
    if (status == TSR_OK)
        status = step_tokens(generator, &token, &count);
    const bool reached = tsr__fault_site() != NULL;
    tsr__fault_disarm();
    CHECK(reached || status == TSR_OK, "%s", tsr_last_error());
    CHECK(opened || (status != TSR_OK && !generator), "no model, but no error");
    tsr_generator_destroy(&generator);
    tsr_model_close(&opened);
    return reached;
}

CASE(failures, "generation: memory runs out, and the driver fails")
{
    if (ranks > 1) {
        case_skip("one rank alone shows the same");
        return;
    }
    made_init(&made, &made_families[5], SEED);
    const char *path = made_write_hf(&made);
    while (fails_at(path, TSR__FAULT_ALLOC, UINT64_MAX)) /* only builds the pipelines */
        ;
    for (uint64_t nth = 0; fails_at(path, TSR__FAULT_ALLOC, nth); nth += 1 + nth / 8)
        ;
    for (uint64_t nth = 0; fails_at(path, TSR__FAULT_VULKAN, nth); nth += 1 + nth / 4)
        ;
    made_finish(&made);
}
