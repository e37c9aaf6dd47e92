/* Tests generators whose sequences have a grammar, or a function that changes logits: each token
 * must be the one that a draw from the logits of the allowed tokens, or from the changed ones,
 * gives. */
#include <math.h>

#include "model/made.h"
#include "model/open.h"
#include "parallel/spmd.h"
#include "tokenizer/tokenizer.h"

enum { SEED = 5, MOST = 40, END = MADE_VOCABULARY - 2 };

static made_model made;
static tsr_model *model;
static tsr_tokenizer *tokenizer;

/* A vocabulary of the letters, the digits, two longer tokens and one that ends a text. The model's
 * has one token more. */
static void open_all(void)
{
    tokenizer = tsr__tokenizer_create();
    tokenizer->kind = TSR_TOKENIZER_BPE;
    for (int i = 0; i < END; i++) {
        const char text[2] = {(char)(i < 26 ? 'a' + i : '0' + i - 26)};
        OK(tsr__vocabulary_add(&tokenizer->vocabulary, (uint64_t)i,
                               i == 36   ? "ab"
                               : i == 37 ? "bca"
                                         : text,
                               i == 36   ? 2
                               : i == 37 ? 3
                                         : 1,
                               TSR__TOKEN_NORMAL));
    }
    OK(tsr__vocabulary_add(&tokenizer->vocabulary, END, "<|eot_id|>", 10, TSR__TOKEN_CONTROL));
    tokenizer->vocabulary.tokens[END].ends = true;
    OK(tsr__vocabulary_index(&tokenizer->vocabulary));
    OK(tsr__tokenizer_complete(tokenizer));
    made_init(&made, &made_families[3], SEED);
    OK(open_model(made_write_hf(&made), NULL, &model));
}

static void close_all(void)
{
    tsr_model_close(&model);
    made_finish(&made);
    tsr_tokenizer_close(&tokenizer);
}

static tsr_grammar_state *state_of(const char *text, tsr_grammar **grammar)
{
    tsr_grammar_state *state = NULL;
    OK(tsr_grammar_create(
        tsr_grammar_params(.tokenizer = tokenizer, .text = text, .size_bytes = strlen(text)),
        grammar));
    OK(tsr_grammar_state_create(*grammar, NULL, &state));
    return state;
}

static int add(tsr_generator *generator, const tsr_grammar_state *state,
               const tsr_sampling_params *sampling)
{
    static const int32_t ids[] = {3, 1, 4};
    int sequence = -1;
    OK(tsr_generator_add(generator,
                         tsr_sequence_params(.prompt = ids, .prompt_count = 3, .sampling = sampling,
                                             .number = 9, .max_tokens = 12, .grammar = state),
                         &sequence));
    return sequence;
}

typedef struct text {
    int32_t tokens[MOST];
    int count;
    tsr_finish finish;
} text;

/* Makes steps until all sequences have ended; texts[number] is that of each. */
static void run(tsr_generator *generator, text *texts)
{
    tsr_generated tokens[4];
    for (int count = 1; count > 0;) {
        OK(step_tokens(generator, tokens, &count));
        for (int i = 0; i < count; i++) {
            text *t = &texts[tokens[i].sequence];
            if (tokens[i].token >= 0)
                t->tokens[t->count++] = tokens[i].token;
            t->finish = tokens[i].finish;
            CHECK((tokens[i].token < 0) == (t->finish == TSR_FINISH_STUCK), "token %d, %s",
                  (int)tokens[i].token, tsr_finish_name(t->finish));
        }
    }
}

static float seen[MOST][MADE_VOCABULARY]; /* by position */

static void see(void *user, int sequence, int64_t position, const float *logits)
{
    (void)user;
    (void)sequence;
    memcpy(seen[position], logits, sizeof seen[position]);
}

/* Checks each token of a text with a grammar of its own, which reads it. */
static void check_draws(const char *grammar_text, const tsr_sampling_params *sampling,
                        const text *t)
{
    tsr_grammar *grammar = NULL;
    tsr_grammar_state *state = state_of(grammar_text, &grammar);
    int32_t ids[MOST] = {3, 1, 4};
    int64_t length = 3;
    for (int i = 0; i < t->count; i++) {
        float logits[MADE_VOCABULARY];
        int32_t wanted;
        for (int32_t id = 0; id < MADE_VOCABULARY; id++) {
            tsr_grammar_state *ahead = NULL;
            OK(tsr_grammar_state_create(grammar, state, &ahead));
            const bool allowed = id == END ? tsr_grammar_state_end(state) != TSR_GRAMMAR_INCOMPLETE
                                           : id < END && tsr_grammar_state_add(ahead, id) == TSR_OK;
            logits[id] = allowed ? seen[length - 1][id] : -INFINITY;
            tsr_grammar_state_destroy(&ahead);
        }
        OK(tsr_sampling_draw(sampling, 9, length, MADE_VOCABULARY, logits, length, ids, &wanted));
        CHECK(t->tokens[i] == wanted, "token %d is %d, not %d", i, (int)t->tokens[i], (int)wanted);
        if (wanted == END)
            break;
        OK(tsr_grammar_state_add(state, wanted));
        ids[length++] = wanted;
    }
    tsr_grammar_state_destroy(&state);
    tsr_grammar_destroy(&grammar);
}

static const char *const grammars[] = {
    "root ::= [xyz] \"ab\" [0-9]{2} \"q\"",
    "root ::= ([a-c]{2,3} [0-9])+",
    "root ::= \"a\" root \"b\" | \"c\" \"7\"?",
};

CASE(draws, "grammar: tokens are draws from the logits of the allowed ones")
{
    open_all();
    const tsr_sampling_params ways[] = {
        {.struct_size = sizeof ways[0]},
        {.struct_size = sizeof ways[0], .temperature = 1.5, .top_k = 3, .seed = 4},
        {.struct_size = sizeof ways[0],
         .temperature = 3,
         .top_p = 0.9,
         .repetition_penalty = 1.3,
         .seed = 5}};
    for (int g = 0; g < 3; g++)
        for (int way = 0; way < 3; way++) {
            tsr_generator *generator = NULL;
            tsr_grammar *grammar = NULL;
            tsr_grammar_state *state = state_of(grammars[g], &grammar);
            text t = {0}, without = {0}, both[2] = {0};
            /* with the logits of all positions, then without, where ranks otherwise exchange their
             * candidates and devices choose, and last beside a sequence without a grammar */
            OK(tsr_generator_create(
                tsr_generator_params(.model = model, .logits = see, .logits_positions = MOST),
                &generator));
            add(generator, state, &ways[way]);
            run(generator, &t);
            tsr_generator_destroy(&generator);
            CHECK(t.finish == (g == 0 ? TSR_FINISH_GRAMMAR : t.finish) &&
                      t.finish != TSR_FINISH_STUCK && t.count > 0,
                  "%d tokens, %s", t.count, tsr_finish_name(t.finish));
            check_draws(grammars[g], &ways[way], &t);
            OK(tsr_generator_create(
                tsr_generator_params(.model = model, .sequences = 2, .ahead = 2), &generator));
            add(generator, state, &ways[way]);
            run(generator, &without);
            CHECK(memcmp(&t, &without, sizeof t) == 0, "other tokens without logits");
            OK(tsr_generator_remove(generator, 0));
            add(generator, NULL, &ways[way]);
            add(generator, state, &ways[way]);
            run(generator, both);
            CHECK(memcmp(&t, &both[1], sizeof t) == 0, "other tokens beside another sequence");
            CHECK(both[0].count == 12 && both[0].finish == TSR_FINISH_MAX_TOKENS, "%d tokens",
                  both[0].count);
            tsr_generator_destroy(&generator);
            tsr_grammar_state_destroy(&state);
            tsr_grammar_destroy(&grammar);
        }
    close_all();
}

CASE(ends, "grammar: ends of texts")
{
    static const int32_t more[] = {8, 9};
    tsr_generator *generator = NULL;
    tsr_grammar *grammars_of[3] = {NULL};
    text t[2] = {0};
    open_all();
    tsr_grammar_state *one = state_of("root ::= \"ab\" \"c\"?", &grammars_of[0]);
    tsr_grammar_state *stuck = state_of("root ::= \"a\" \"\u00e9\"", &grammars_of[1]);
    tsr_grammar_state *either = state_of("root ::= \"7\"?", &grammars_of[2]);
    OK(tsr_generator_create(
        tsr_generator_params(.model = model, .sequences = 2, .log_probabilities = true),
        &generator));
    /* a grammar that no token continues ends its own sequence only */
    const int first = add(generator, stuck, NULL);
    const int second = add(generator, one, NULL);
    run(generator, t);
    CHECK(t[first].count == 1 && t[first].finish == TSR_FINISH_STUCK, "%d tokens, %s",
          t[first].count, tsr_finish_name(t[first].finish));
    CHECK(t[second].count >= 1 && (t[second].finish == TSR_FINISH_GRAMMAR ||
                                   t[second].tokens[t[second].count - 1] == END),
          "%d tokens, %s", t[second].count, tsr_finish_name(t[second].finish));
    /* a sequence that goes on begins its grammar again */
    const text before = t[second];
    OK(tsr_generator_continue(generator, second, 2, more, 0));
    t[second] = (text){0};
    run(generator, t);
    CHECK(t[second].count >= 1 && t[second].tokens[0] == before.tokens[0] &&
              t[second].finish != TSR_FINISH_CONTEXT,
          "%d tokens, %s", t[second].count, tsr_finish_name(t[second].finish));
    /* where the text may end, the only tokens are those that continue it and those that end it */
    OK(tsr_generator_remove(generator, second));
    t[second] = (text){0};
    CHECK(add(generator, either, NULL) == second, "another number");
    run(generator, t);
    CHECK((t[second].tokens[0] == 26 + 7 && t[second].finish == TSR_FINISH_GRAMMAR) ||
              (t[second].tokens[0] == END && t[second].finish == TSR_FINISH_TOKEN),
          "token %d, %s", (int)t[second].tokens[0], tsr_finish_name(t[second].finish));
    tsr_generator_destroy(&generator);
    tsr_grammar_state_destroy(&one);
    tsr_grammar_state_destroy(&stuck);
    tsr_grammar_state_destroy(&either);
    for (int i = 0; i < 3; i++)
        tsr_grammar_destroy(&grammars_of[i]);
    close_all();
}

CASE(mistakes, "grammar: another vocabulary, and other grammars on other ranks")
{
    static const int32_t ids[] = {1};
    tsr_generator *generator = NULL;
    tsr_grammar *grammar = NULL;
    int sequence, count;
    open_all();
    OK(tsr_generator_create(tsr_generator_params(.model = model), &generator));
    tsr_grammar_state *state =
        state_of(my_rank == 0 ? "root ::= \"a\"" : "root ::= \"b\"", &grammar);
    OK(tsr_generator_add(generator,
                         tsr_sequence_params(.prompt = ids, .prompt_count = 1, .grammar = state),
                         &sequence));
    if (ranks > 1)
        FAILS(tsr_generator_step(generator, &count), TSR_ERR_INVALID,
              "generator: not all ranks have the same grammar; the last sequence of this rank is "
              "0");
    OK(tsr_generator_remove(generator, sequence));
    tsr_grammar_state_destroy(&state);
    tsr_grammar_destroy(&grammar);
    for (uint64_t id = MADE_VOCABULARY - 1; id <= MADE_VOCABULARY; id++) {
        char spelling[8];
        snprintf(spelling, sizeof spelling, "t%d", (int)id);
        OK(tsr__vocabulary_add(&tokenizer->vocabulary, id, spelling, strlen(spelling),
                               TSR__TOKEN_NORMAL));
    }
    OK(tsr__tokenizer_complete(tokenizer));
    tokenizer->trie = (tsr__trie_place_destroy(tokenizer->trie), tsr__trie_place_create());
    state = state_of("root ::= \"a\"", &grammar);
    FAILS(tsr_generator_add(generator,
                            tsr_sequence_params(.prompt = ids, .prompt_count = 1, .grammar = state),
                            &sequence),
          TSR_ERR_INVALID,
          "generator: the grammar's tokenizer has 41 tokens, but the vocabulary only 40");
    tsr_grammar_state_destroy(&state);
    tsr_grammar_destroy(&grammar);
    tsr_generator_destroy(&generator);
    close_all();
}

/* Odd tokens are not chosen, and the others depend on the token before. */
static void prefer(void *user, int sequence, int64_t count, const int32_t *tokens, float *logits)
{
    int *calls = user;
    (void)sequence;
    (*calls)++;
    for (int32_t id = 0; id < MADE_VOCABULARY; id++)
        logits[id] =
            id % 2 == 1 ? -INFINITY : logits[id] + 0.5F * (float)((id + tokens[count - 1]) % 7);
}

static void forbid_all(void *user, int sequence, int64_t count, const int32_t *tokens,
                       float *logits)
{
    (void)user;
    (void)sequence;
    (void)count;
    (void)tokens;
    for (int id = 0; id < MADE_VOCABULARY; id++)
        logits[id] = -INFINITY;
}

static int add_processed(tsr_generator *generator, tsr_logits_process_fn process, int *calls,
                         const tsr_grammar_state *state, const tsr_sampling_params *sampling)
{
    static const int32_t ids[] = {3, 1, 4};
    int sequence = -1;
    OK(tsr_generator_add(generator,
                         tsr_sequence_params(.prompt = ids, .prompt_count = 3, .sampling = sampling,
                                             .number = 9, .max_tokens = 12, .ignore_end = true,
                                             .grammar = state, .process = process,
                                             .process_user = calls),
                         &sequence));
    return sequence;
}

CASE(process, "process: a function changes the logits from which tokens are chosen")
{
    const tsr_sampling_params way = {
        .struct_size = sizeof way, .temperature = 1.5, .top_k = 9, .seed = 4};
    tsr_generator *generator = NULL;
    tsr_grammar *grammar = NULL;
    text t = {0}, again[2] = {0};
    int calls = 0, others = 0, count;
    open_all();
    OK(tsr_generator_create(
        tsr_generator_params(.model = model, .logits = see, .logits_positions = MOST), &generator));
    add_processed(generator, prefer, &calls, NULL, &way);
    run(generator, &t);
    tsr_generator_destroy(&generator);
    CHECK(t.count == 12 && calls == (my_rank == 0 ? 12 : 0), "%d tokens, %d calls", t.count, calls);
    int32_t ids[MOST] = {3, 1, 4}, wanted;
    for (int i = 0; i < t.count; i++) {
        prefer(&others, 0, 3 + i, ids, seen[2 + i]);
        OK(tsr_sampling_draw(&way, 9, 3 + i, MADE_VOCABULARY, seen[2 + i], 3 + i, ids, &wanted));
        CHECK(t.tokens[i] == wanted, "token %d is %d, not %d", i, (int)t.tokens[i], (int)wanted);
        ids[3 + i] = wanted;
    }
    /* beside a sequence with a grammar, too, where ranks otherwise exchange candidates, devices
     * choose and drafts are computed; the grammar is obeyed after the function */
    tsr_grammar_state *state = state_of("root ::= [b-z0-9]+", &grammar);
    OK(tsr_generator_create(
        tsr_generator_params(.model = model, .sequences = 2, .ahead = 2, .draft = TSR_DRAFT_NGRAM),
        &generator));
    add_processed(generator, prefer, &calls, NULL, &way);
    add_processed(generator, prefer, &calls, state, NULL);
    run(generator, again);
    CHECK(memcmp(&t, &again[0], sizeof t) == 0, "other tokens beside another sequence");
    for (int i = 0; i < again[1].count; i++)
        CHECK(again[1].tokens[i] % 2 == 0 && again[1].tokens[i] > 0 && again[1].tokens[i] < 36,
              "token %d", (int)again[1].tokens[i]);
    CHECK(again[1].count == 12, "%d tokens", again[1].count);
    /* not on all ranks, and without any token */
    OK(tsr_generator_remove(generator, 0));
    OK(tsr_generator_remove(generator, 1));
    if (ranks > 1) {
        add_processed(generator, my_rank == 0 ? prefer : NULL, &calls, NULL, NULL);
        CHECK(tsr_generator_step(generator, &count) == TSR_ERR_INVALID &&
                  strstr(tsr_last_error(),
                         my_rank == 0 ? ", and process is not NULL" : ", and process is NULL"),
              "%s", tsr_last_error());
    } else {
        add_processed(generator, forbid_all, NULL, NULL, NULL);
        FAILS(tsr_generator_step(generator, &count), TSR_ERR_INVALID,
              "generator: sequence 0, position 3: sampling: all of 40 logits are -inf");
    }
    tsr_generator_destroy(&generator);
    tsr_grammar_state_destroy(&state);
    tsr_grammar_destroy(&grammar);
    close_all();
}
