/* Tests the schedule of generators: pieces of prompts beside the tokens of others, sequences that
 * wait for pages, and prompts that begin as earlier ones did. The tokens must be those of sequences
 * that are alone. */
#include <math.h>

#include "model/generate/generator.h"
#include "model/made.h"
#include "model/open.h"
#include "parallel/spmd.h"

enum { SEQUENCES = 4, SEED = 5, PIECE = 4, MOST = MADE_CONTEXT + 1 };

static made_model made;
static tsr_model *model;

static bool has_states; /* the model has delta nets */
static int snapshots;   /* of generators with a prefix cache */

static void open_made(void)
{
    if (has_states) {
        OK(open_delta(MADE_VOCABULARY, MADE_CONTEXT, SEED, NULL, &model));
        return;
    }
    made_init(&made, &made_families[3], SEED);
    OK(open_model(made_write_hf(&made), NULL, &model));
}

static void close_made(void)
{
    tsr_model_close(&model);
    if (!has_states)
        made_finish(&made);
}

static tsr_generator *generator_of(int64_t cache_tokens, bool prefix_cache)
{
    tsr_generator *generator = NULL;
    OK(tsr_generator_create(tsr_generator_params(.model = model, .sequences = SEQUENCES,
                                                 .prefill = PIECE, .cache_tokens = cache_tokens,
                                                 .log_probabilities = true, .piece = PIECE,
                                                 .prefix_cache = prefix_cache,
                                                 .snapshots = prefix_cache ? snapshots : 0),
                            &generator));
    return generator;
}

/* The text of a sequence: its prompt and the tokens that follow. */
typedef struct text {
    int64_t prompt, length;
    int32_t tokens[MOST];
    double log_probabilities[MOST];
    int64_t cached;
    tsr_finish finish;
} text;

/* Begins a text with `common` tokens that all texts have, and others after them. */
static text text_of(int which, int64_t common, int64_t prompt)
{
    text t = {.prompt = prompt, .length = prompt};
    for (int64_t i = 0; i < prompt; i++) {
        const uint64_t stream = i < common ? 99 : 100 + (uint64_t)which;
        t.tokens[i] = (int32_t)((number(stream, i) + 1) / 2 * MADE_VOCABULARY);
    }
    return t;
}

static int add(tsr_generator *generator, const text *t, int64_t most)
{
    int sequence;
    OK(tsr_generator_add(
        generator,
        tsr_sequence_params(.prompt = t->tokens, .prompt_count = t->prompt, .max_tokens = most),
        &sequence));
    return sequence;
}

static tsr_generator_stats stats_of(const tsr_generator *generator)
{
    tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
    OK(tsr_generator_get_stats(generator, &stats));
    return stats;
}

/* Makes a step, and appends its tokens to the texts of their sequences. Returns their number. */
static int step(tsr_generator *generator, text *const *texts)
{
    int count = 0;
    OK(tsr_generator_step(generator, &count));
    for (int i = 0; i < count; i++) {
        const tsr_generated *token = tsr_generator_token(generator, i);
        text *t = texts[token->sequence];
        CHECK(token->position == t->length && t->finish == TSR_FINISH_NONE, "position %d, not %d",
              (int)token->position, (int)t->length);
        t->log_probabilities[t->length] = token->log_probability;
        t->tokens[t->length++] = token->token;
        t->cached = token->cached;
        t->finish = token->finish;
    }
    return count;
}

static void finish(tsr_generator *generator, text *const *texts)
{
    int steps = 0;
    while (stats_of(generator).running > 0) {
        step(generator, texts);
        CHECK(++steps < 2000, "no end");
    }
}

/* Completes a text alone, without a schedule. */
static void complete(text *t, int64_t most)
{
    tsr_generator *generator = NULL;
    tsr_generated token;
    int count = 1;
    OK(tsr_generator_create(
        tsr_generator_params(.model = model, .prefill = PIECE, .log_probabilities = true),
        &generator));
    add(generator, t, most);
    while (count > 0) {
        OK(step_tokens(generator, &token, &count));
        if (count > 0)
            t->tokens[t->length++] = token.token;
    }
    tsr_generator_destroy(&generator);
}

static void compare(const text *got, const text *want)
{
    CHECK(got->length == want->length, "%d tokens, not %d", (int)got->length, (int)want->length);
    for (int64_t i = 0; i < want->length; i++)
        CHECK(got->tokens[i] == want->tokens[i], "token %d is %d, not %d", (int)i,
              (int)got->tokens[i], (int)want->tokens[i]);
}

static void check_text(const text *got, const text *start, int64_t most)
{
    text want = *start;
    complete(&want, most);
    compare(got, &want);
}

CASE(pieces, "schedule: pieces of prompts beside the tokens of other sequences")
{
    open_made();
    const text starts[3] = {text_of(0, 0, 3), text_of(1, 0, 42), text_of(2, 0, 2)};
    text texts[3] = {starts[0], starts[1], starts[2]};
    text *by_sequence[SEQUENCES] = {&texts[0], &texts[1], &texts[2]};
    tsr_generator *generator = generator_of(0, false);
    CHECK(add(generator, &texts[0], 30) == 0, "another number");
    CHECK(step(generator, by_sequence) == 1, "no token");
    CHECK(add(generator, &texts[1], 5) == 1, "another number");
    int steps = 0;
    uint64_t before = stats_of(generator).prompt_tokens;
    for (; texts[1].length == texts[1].prompt; steps++) {
        const int64_t length = texts[0].length;
        if (steps == 4)
            CHECK(add(generator, &texts[2], 3) == 2, "another number");
        step(generator, by_sequence);
        CHECK(texts[0].length == length + 1, "the prompt delays a token");
        CHECK(steps < 6 || texts[2].length > texts[2].prompt,
              "a short prompt waits for a long one");
        const uint64_t now = stats_of(generator).prompt_tokens;
        CHECK(now > before && now - before <= PIECE, "%d tokens in a step", (int)(now - before));
        before = now;
    }
    CHECK(steps >= 11 && steps <= 13, "%d steps", steps);
    CHECK(stats_of(generator).most_step_tokens == PIECE, "not a piece");
    finish(generator, by_sequence);
    for (int i = 0; i < 3; i++)
        check_text(&texts[i], &starts[i], i == 0 ? 30 : i == 1 ? 5 : 3);
    tsr_generator_destroy(&generator);
    close_made();
}

static void run_waiting(void)
{
    /* 16 pages of 4 tokens; the texts need 12, 12, 10 and 16 of them */
    const text starts[SEQUENCES] = {text_of(0, 9, 10), text_of(1, 9, 20), text_of(2, 9, 12),
                                    text_of(3, 9, 50)};
    static const int64_t most[SEQUENCES] = {36, 28, 26, 0};
    text wants[SEQUENCES] = {starts[0], starts[1], starts[2], starts[3]};
    open_made();
    for (int i = 0; i < SEQUENCES; i++)
        complete(&wants[i], most[i]);
    for (int prefix = 0; prefix < 2; prefix++) {
        text texts[SEQUENCES] = {starts[0], starts[1], starts[2], starts[3]};
        text *by_sequence[SEQUENCES] = {&texts[0], &texts[1], &texts[2], &texts[3]};
        tsr_generator *generator = generator_of(64, prefix == 1);
        for (int i = 0; i < SEQUENCES; i++)
            CHECK(add(generator, &texts[i], most[i]) == i, "another number");
        int64_t length = texts[0].length;
        for (int i = 0; texts[0].finish == TSR_FINISH_NONE; i++) {
            step(generator, by_sequence);
            CHECK(i < 10 || texts[0].length == length + 1, "the oldest sequence waits");
            length = texts[0].length;
        }
        tsr_generator_stats stats = stats_of(generator);
        CHECK(stats.preemptions > 0 && stats.waiting > 0, "%d preemptions, %d wait",
              (int)stats.preemptions, (int)stats.waiting);
        finish(generator, by_sequence);
        for (int i = 0; i < SEQUENCES; i++)
            compare(&texts[i], &wants[i]);
        CHECK(texts[3].finish == TSR_FINISH_CONTEXT, "%s", tsr_finish_name(texts[3].finish));
        for (int i = 0; i < SEQUENCES; i++)
            OK(tsr_generator_remove(generator, i));
        stats = stats_of(generator);
        CHECK(stats.pages == 16 && stats.free_pages + stats.prefix_pages == 16 &&
                  (prefix == 1) == (stats.prefix_pages > 0),
              "%d pages are free, %d kept", (int)stats.free_pages, (int)stats.prefix_pages);
        tsr_generator_destroy(&generator);
    }
    close_made();
}

CASE(waiting, "schedule: the youngest sequences wait for pages, and none fails")
{
    run_waiting();
}

/* Generates a text with and without earlier texts that begin alike, and checks that all
 * log-probabilities have the same bits. */
static void check_bits(tsr_generator *generator, const text *start, int64_t most, int64_t cached)
{
    text with = *start, without = *start;
    text *one[SEQUENCES] = {&with, &with, &with, &with};
    const uint64_t before = stats_of(generator).prompt_tokens;
    const int sequence = add(generator, &with, most);
    finish(generator, one);
    OK(tsr_generator_remove(generator, sequence));
    CHECK(with.cached == cached &&
              stats_of(generator).prompt_tokens - before == (uint64_t)(start->prompt - cached),
          "%d tokens were there, not %d", (int)with.cached, (int)cached);
    tsr_generator *other = generator_of(0, false);
    one[0] = &without;
    add(other, &without, most);
    finish(other, one);
    tsr_generator_destroy(&other);
    CHECK(with.length == without.length, "%d tokens, not %d", (int)with.length,
          (int)without.length);
    for (int64_t i = start->prompt; i < with.length; i++)
        CHECK(with.tokens[i] == without.tokens[i] &&
                  memcmp(&with.log_probabilities[i], &without.log_probabilities[i],
                         sizeof *with.log_probabilities) == 0,
              "token %d: %d at %.17g, not %d at %.17g", (int)i, (int)with.tokens[i],
              with.log_probabilities[i], (int)without.tokens[i], without.log_probabilities[i]);
}

static void run_prefixes(void)
{
    open_made();
    tsr_generator *generator = generator_of(0, true);
    text first = text_of(0, 20, 30), second = text_of(1, 20, 41), third = text_of(2, 18, 18);
    check_bits(generator, &first, 6, 0);
    check_bits(generator, &first, 6, 28);
    check_bits(generator, &second, 5, 20);
    check_bits(generator, &second, 5, 40);
    check_bits(generator, &third, 4, 16);
    /* the piece with the last token of a prompt is computed for its logits */
    third.prompt = third.length = 16;
    check_bits(generator, &third, 4, 12);
    /* a conversation's next turn */
    text *one[SEQUENCES] = {&first};
    add(generator, &first, 6);
    finish(generator, one);
    OK(tsr_generator_remove(generator, 0));
    first.prompt = first.length;
    first.finish = TSR_FINISH_NONE;
    check_bits(generator, &first, 6, 28);
    check_bits(generator, &first, 6, 32);
    tsr_generator_destroy(&generator);
    close_made();
}

CASE(prefixes, "schedule: prompts that begin alike are computed once, with the same bits")
{
    run_prefixes();
}

static void run_together(void)
{
    open_made();
    tsr_generator *generator = generator_of(0, true);
    text texts[SEQUENCES];
    text *by_sequence[SEQUENCES];
    for (int i = 0; i < SEQUENCES; i++) {
        texts[i] = text_of(i, 40, 42);
        by_sequence[i] = &texts[i];
        add(generator, &texts[i], 4);
    }
    const text starts[SEQUENCES] = {texts[0], texts[1], texts[2], texts[3]};
    finish(generator, by_sequence);
    tsr_generator_stats stats = stats_of(generator);
    CHECK(stats.prompt_tokens == 40 + SEQUENCES * 2 && stats.cached_tokens == 3 * 40,
          "%d tokens were computed, %d were there", (int)stats.prompt_tokens,
          (int)stats.cached_tokens);
    CHECK(stats.pages - stats.free_pages == 10 + SEQUENCES * 2, "%d pages are in use",
          (int)(stats.pages - stats.free_pages));
    for (int i = 0; i < SEQUENCES; i++)
        check_text(&texts[i], &starts[i], 4);
    /* ended sequences keep their pages, and go on */
    OK(tsr_generator_continue(generator, 1, 1, (int32_t[]){7}, 3));
    texts[1].finish = TSR_FINISH_NONE;
    texts[1].tokens[texts[1].length++] = 7;
    text whole = texts[1];
    whole.prompt = whole.length;
    finish(generator, by_sequence);
    check_text(&texts[1], &whole, 3);
    tsr_generator_destroy(&generator);
    close_made();
}

CASE(together, "schedule: texts that run together share the pages of their prompts")
{
    run_together();
}

CASE(eviction, "schedule: the prefixes that were not used for the longest time leave first")
{
    open_made();
    /* 16 pages; a and b need 6, of which 5 are kept, and c needs 7 */
    tsr_generator *generator = generator_of(64, true);
    const text a = text_of(0, 0, 21), b = text_of(1, 0, 21), c = text_of(2, 0, 25);
    check_bits(generator, &a, 2, 0);
    check_bits(generator, &b, 2, 0);
    check_bits(generator, &a, 2, 20);
    check_bits(generator, &c, 2, 0); /* b loses its last page */
    check_bits(generator, &a, 2, 20);
    check_bits(generator, &c, 2, 24);
    check_bits(generator, &b, 2, 16);
    const tsr_generator_stats stats = stats_of(generator);
    CHECK(stats.prefix_pages <= 16 && stats.free_pages >= 0, "%d pages", (int)stats.prefix_pages);
    tsr_generator_destroy(&generator);
    close_made();
}

/* A model with delta nets: pieces of prompts are found again if their states are kept. */
CASE(states, "schedule: texts wait, and begin alike, with states beside pages")
{
    has_states = true;
    run_waiting();
    if (ranks == 1) {
        snapshots = 64;
        run_prefixes();
        run_together();
    }
    /* Two snapshots: those of the last two pieces of a text. */
    snapshots = 2;
    open_made();
    tsr_generator *generator = generator_of(0, true);
    const text a = text_of(0, 20, 30), b = text_of(1, 20, 41);
    text shorter = a;
    check_bits(generator, &a, 6, 0);
    check_bits(generator, &a, 6, 28);
    check_bits(generator, &b, 5, 0); /* the snapshot after 20 tokens has left */
    check_bits(generator, &b, 5, 40);
    check_bits(generator, &a, 6, 0); /* whose pieces are known, and get their snapshots again */
    check_bits(generator, &a, 6, 28);
    shorter.prompt = shorter.length = 26;
    check_bits(generator, &shorter, 4, 24);
    tsr_generator_destroy(&generator);
    close_made();
    has_states = false;
    snapshots = 0;
}

CASE(scheduled_interrupts, "schedule: an interrupt ends sequences whose prompts are not complete")
{
    open_made();
    text t = text_of(0, 0, 30);
    text *one[SEQUENCES] = {&t};
    int count = 0;
    tsr_generator *generator = generator_of(0, true);
    add(generator, &t, 4);
    CHECK(step(generator, one) == 0 && stats_of(generator).running == 1, "a token already");
    if (my_rank == ranks - 1)
        tsr_generator_interrupt(generator);
    OK(tsr_generator_step(generator, &count));
    CHECK(count == 1 && tsr_generator_token(generator, 0)->finish == TSR_FINISH_INTERRUPT,
          "%d tokens", count);
    CHECK(stats_of(generator).running == 0, "it goes on");
    tsr_generator_destroy(&generator);
    close_made();
}

static void show(void *user, int sequence, int64_t position, const float *logits)
{
    (void)user;
    (void)sequence;
    (void)position;
    (void)logits;
}

CASE(schedule_mistakes, "schedule: refused values")
{
    tsr_generator *generator = NULL;
    int sequence;
    open_made();
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .piece = -1), &generator),
          TSR_ERR_INVALID, "generator: piece is -1; 0 to 1073741824 is possible");
    FAILS(
        tsr_generator_create(tsr_generator_params(.model = model, .prefix_cache = true),
                             &generator),
        TSR_ERR_INVALID,
        "generator: prefix_cache needs a piece and no function for logits; piece is 0, and logits "
        "is NULL");
    FAILS(
        tsr_generator_create(
            tsr_generator_params(.model = model, .piece = 4, .logits = show, .prefix_cache = true),
            &generator),
        TSR_ERR_INVALID,
        "generator: prefix_cache needs a piece and no function for logits; piece is 4, and logits "
        "is not NULL");
    FAILS(tsr_generator_create(
              tsr_generator_params(.model = model, .piece = 65, .prefix_cache = true), &generator),
          TSR_ERR_INVALID,
          "generator: piece is 65; with prefix_cache it must be a multiple of 64, the tokens of a "
          "page");
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .piece = 4, .snapshots = 3),
                               &generator),
          TSR_ERR_INVALID,
          "generator: snapshots is 3, and prefix_cache is not set; 0 to 65536 is possible, and 0 "
          "without it");
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .piece = 4,
                                                    .prefix_cache = true, .snapshots = -1),
                               &generator),
          TSR_ERR_INVALID,
          "generator: snapshots is -1, and prefix_cache is set; 0 to 65536 is possible, and 0 "
          "without it");
    generator = generator_of(16, false);
    const text long_text = text_of(0, 0, 17);
    FAILS(tsr_generator_add(generator,
                            tsr_sequence_params(.prompt = long_text.tokens, .prompt_count = 17),
                            &sequence),
          TSR_ERR_INVALID, "generator: the prompt has 17 tokens, but the context only 16");
    tsr_generator_destroy(&generator);
    close_made();
}
