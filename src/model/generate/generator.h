/* The struct of a generator, which the files of this folder share. */
#ifndef TSR_MODEL_GENERATE_GENERATOR_H
#define TSR_MODEL_GENERATE_GENERATOR_H

#include <stdatomic.h>

#include "base/error.h"
#include "model/generate/prefix.h"
#include "tessera/generator.h"

/* The tokens in a page of a generator's cache, unless the context is smaller. */
#define TSR__PAGE_TOKENS 64
/* How many tokens of a sequence wait for the layer that predicts further tokens, more than passes
 * in flight or drafts. */
#define TSR__NEXT_FEATURES 32

typedef struct tsr__sequence {
    bool used;
    tsr_finish finish;
    int cache;      /* the number of the sequence in the cache */
    int64_t length; /* the number of tokens */
    int64_t seen;   /* the number of first tokens that are in the cache */
    int64_t limit;  /* the largest length */
    tsr_finish at_limit;
    /* With `piece` of the params; see schedule.c. */
    uint64_t age;   /* the number of sequences that were added before */
    bool in_prompt; /* the sequence gets its next token when `seen` reaches `length` */
    int64_t prompt; /* the length of the prompt */
    int64_t cached; /* tokens of the prompt that were found in the prefix cache */
    int64_t whole;  /* the first tokens that are in whole blocks, the last of which is `block` */
    int block;
    int32_t *tokens;
    tsr_sampling_params sampling; /* its biases are `biases` */
    tsr_logit_bias *biases;
    bool log_probabilities;
    int top_log_probabilities;
    uint64_t number;
    bool ignore_end;
    int32_t *stop;
    int stop_count;
    /* How far its grammar has read the generated text, and where it begins; NULL: it has none. */
    tsr_grammar_state *grammar, *grammar_start;
    tsr_logits_process_fn process; /* NULL: none */
    void *process_user;
    const struct tsr__stack_adapter *adapter; /* NULL: none */
} tsr__sequence;

/* The kinds of arguments that must be the same on all ranks. Each kind has a digest, a hash of
 * them. */
typedef enum tsr__same {
    TSR__SAME_SETTINGS,
    TSR__SAME_PROMPTS,
    TSR__SAME_SAMPLING,
    TSR__SAME_ENDS,
    TSR__SAME_GRAMMAR,
    TSR__SAME_COUNT
} tsr__same;

/* Passes whose tokens stay on the device until the host reads them; see flight.c. */
typedef struct tsr__flight tsr__flight;
/* Tokens that are computed before they are chosen; see draft.h. */
typedef struct tsr__drafts tsr__drafts;
/* The memory in which ranks exchange their most likely tokens; see candidates.c. */
typedef struct tsr__candidates tsr__candidates;

/* What `chosen` has instead of a token: rank 0 must choose from the logits, or another rank has the
 * token. */
#define TSR__CHOSEN_NONE (-1)
#define TSR__CHOSEN_ELSEWHERE (-2)

struct tsr_generator {
    tsr_generator_params params;
    bool prefill_given; /* the caller's params give `prefill` */
    tsr_model *model;
    tsr_kv_cache *cache;
    tsr__flight *flight;         /* NULL: each step waits for its logits */
    tsr__drafts *drafts;         /* NULL: no speculation */
    tsr__candidates *candidates; /* NULL: all logits are gathered */
    tsr__prefix *prefix;         /* NULL: prompts are always computed */
    int64_t page_tokens, pages;  /* of the cache */
    int64_t longest;             /* the most tokens of a sequence in the cache */
    uint64_t added;              /* sequences so far */
    int first_prompt;            /* the sequence whose prompt comes first in the next step */
    int count;                   /* the number of `sequences` */
    tsr__sequence *sequences;    /* [count] */
    float *logits;               /* [count, vocabulary]: from which the next tokens are chosen */
    float *shown;                /* [prefill, vocabulary]: logits for the caller only; or NULL */
    int32_t *ids;                /* [max(count, prefill)] */
    /* of each sequence, of interrupts, and of the length of drafts; then those of draft_ahead.c */
    int32_t *votes; /* [count + 2 + …] */
    /* [count]: by sequence, the token that was chosen with the logits, or TSR__CHOSEN_… */
    int32_t *chosen;
    double *log_probabilities; /* [count]: those of the chosen tokens */
    /* [count, TSR_MAX_TOP_LOG_PROBABILITIES]: of the same tokens; NULL: not wanted yet */
    tsr_log_probability *top;
    tsr_generated *generated; /* [count]: the tokens of the last step */
    int generated_count;
    uint64_t same[TSR__SAME_COUNT]; /* digests of all calls' arguments */
    bool unchecked;                 /* sequences got tokens since ranks compared their digests */
    /* The sequence that got tokens last, for error texts: its number and values at that time,
     * without its memory; the number of these tokens, the first and the last of them. */
    int last_number;
    tsr__sequence last;
    int64_t last_count;
    int32_t last_tokens[2];
    tsr_generator_stats stats;
    uint64_t step_ns; /* the time of the tokens that this step has computed, not for prompts */
    int step_tokens;  /* these tokens */
    bool warm;        /* the kernels of drafts have been built */
    uint32_t *mask;   /* [mask_words]: the tokens that a grammar allows; NULL: there was none yet */
    int64_t mask_words;
    float *allowed; /* [vocabulary]: logits that the caller's function or a grammar has changed */
    atomic_bool interrupt;
};

/* cache.c */

/* Creates a cache with the generator's pages and sequences, for this rank's part of a model. */
tsr_status tsr__generator_create_cache(const tsr_generator *generator, const tsr_model *model,
                                       tsr_kv_cache **out) TSR_NODISCARD;

/* adapters.c: adapters of sequences. */

/* Gives a new sequence its adapter, or none if `lora` is NULL. */
tsr_status tsr__generator_take_adapter(const tsr_generator *generator, const struct tsr_lora *lora,
                                       tsr__sequence *sequence) TSR_NODISCARD;
/* Chooses the adapters of the next pass, which has `tokens` tokens of each of these sequences.
 * After the blocks, tsr__stack_use_none is for the head, and then tsr__stack_use_enabled. */
tsr_status tsr__generator_use_adapters(const tsr_generator *generator, int count,
                                       const int *numbers, int64_t tokens) TSR_NODISCARD;
/* The number with which the chain of a sequence's blocks in the prefix cache begins. */
uint64_t tsr__generator_chain(const tsr_generator *generator, const tsr__sequence *sequence);

/* state_slots.c */

/* Chooses the states that a cache keeps so that up to kept_tokens tokens can be taken back. */
void tsr__generator_keep_tokens(int kept_tokens, tsr_kv_cache_params *out);
/* Returns how many states the cache of a generator has at most, for each layer that has some.
 * draft_tokens may be 0; snapshots are those of a prefix cache. */
int64_t tsr__generator_state_slots(int sequences, int draft_tokens, int snapshots);

/* states.c: states of delta nets. */

/* Returns whether layers of the model, on any rank, have states. */
bool tsr__generator_has_states(const tsr_model *model);
/* Takes the tokens of a sequence from `length` on from the cache. If its states at this length are
 * not kept, more tokens are taken, and computed again as those of a prompt. */
void tsr__generator_take_back(tsr_generator *generator, int number, int64_t length);

/* device_choice.c */

struct tsr_choice_words;
/* Records the choice of tokens from all logits [rows, 1, vocabulary]: by choices[rows], and `seen`
 * as for tsr__choose, or NULL. Writes the first `rows` results, and creates *ids, i32 [rows, 1]. */
tsr_status tsr__generator_record_draw(const tsr_model *model, int rows, const tsr_tensor *logits,
                                      const struct tsr_choice_words *choices, tsr_tensor *seen,
                                      const tsr_tensor *results, tsr_tensor **ids) TSR_NODISCARD;
/* The same after features [rows, 1, width]. */
tsr_status tsr__generator_record_choice(const tsr_model *model, int rows,
                                        const tsr_tensor *features,
                                        const struct tsr_choice_words *choices, tsr_tensor *seen,
                                        const tsr_tensor *results, tsr_tensor **ids) TSR_NODISCARD;

/* sampling.c */

/* Checks that the values are in their ranges. Errors: TSR_ERR_INVALID naming the value that is not.
 */
tsr_status tsr__sampling_check(const tsr_sampling_params *params) TSR_NODISCARD;
/* Describes the draw of the token at `position` of the sequence with this number, for the device.
 * seen_row is 0. The params must have been checked. */
tsr_status tsr__sampling_choice(const tsr_sampling_params *params, uint64_t number,
                                int64_t position, struct tsr_choice_words *out) TSR_NODISCARD;
/* Computes the probabilities of all tokens after the filters of tsr_sampling_params:
 * probabilities[count], 0 for tokens that are removed. With a temperature of 0, the chosen token
 * has
 * 1. Errors: as tsr_sampling_draw. */
tsr_status tsr__sampling_probabilities(const tsr_sampling_params *params, int64_t count,
                                       const float *logits, int64_t history_count,
                                       const int32_t *history, double *probabilities) TSR_NODISCARD;

/* Returns whether the params change logits before the filters: by biases or penalties. */
bool tsr__sampling_changes(const tsr_sampling_params *params);
/* Changes the logits of tokens first, first + 1, …, first + count − 1 by the params' biases and
 * penalties. `words` are from tsr__sampling_choice. The params and their biases must have been
 * checked. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__sampling_change(const tsr_sampling_params *params,
                                const struct tsr_choice_words *words, int64_t first, int64_t count,
                                float *logits, int64_t history_count,
                                const int32_t *history) TSR_NODISCARD;
/* Draws one of `count` tokens that are in the order of their ids: its index. Others have been left
 * out that are less likely than all tokens that the filters keep; the sum of their weights is
 * `others`. The params must have been checked. tsr__sampling_change has changed the logits. */
tsr_status tsr__sampling_draw_some(const tsr_sampling_params *params,
                                   const struct tsr_choice_words *words, int64_t count,
                                   const float *logits, uint64_t others,
                                   int32_t *index) TSR_NODISCARD;
/* Draws a draft of the token at `position`, from the logits of a draft_model. probabilities[count]
 * become those from which it is drawn. */
tsr_status tsr__sampling_draft(const tsr_sampling_params *params, uint64_t number, int64_t position,
                               int64_t count, const float *logits, int64_t history_count,
                               const int32_t *history, double *probabilities,
                               int32_t *token) TSR_NODISCARD;
/* Chooses the token at `position` by rejection sampling: `draft`, which was drawn with the
 * probabilities drafts[count], or another one, so that the token has the probabilities of
 * tsr__sampling_probabilities for these logits. */
tsr_status tsr__sampling_accept(const tsr_sampling_params *params, uint64_t number,
                                int64_t position, int64_t count, const float *logits,
                                int64_t history_count, const int32_t *history, int32_t draft,
                                const double *drafts, int32_t *token) TSR_NODISCARD;

/* adjust.c */

/* Returns whether the host must change logits before a token is chosen. */
bool tsr__sampling_adjusts(const tsr_sampling_params *params);
tsr_status tsr__sampling_check_adjust(const tsr_sampling_params *params) TSR_NODISCARD;
/* Checks that the biases are for tokens of a vocabulary of `count`. Errors: TSR_ERR_INVALID. */
tsr_status tsr__sampling_check_biases(const tsr_sampling_params *params,
                                      int64_t count) TSR_NODISCARD;
/* Adds the biases to the logits of tokens first, first + 1, …, first + count − 1, and subtracts the
 * penalties for tokens that have been generated. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__sampling_adjust(const tsr_sampling_params *params, int64_t first, int64_t count,
                                float *logits, int64_t history_count,
                                const int32_t *history) TSR_NODISCARD;

/* probabilities.c */

/* Returns whether the tokens of a sequence get a log_probability. */
bool tsr__generator_wants_probability(const tsr_generator *generator, int number);
/* Computes the log-probabilities of the tokens in `votes` of these sequences, and their most likely
 * tokens. Only the last stage has the logits, so the other stages get the results from it. */
tsr_status tsr__generator_find_probabilities(tsr_generator *generator, int count,
                                             const int *numbers) TSR_NODISCARD;

/* flight.c */

/* Creates what passes in flight need. *out stays NULL if the generator has none: with several ranks
 * or stages, log-probabilities, or if the params say so. */
tsr_status tsr__flight_create(const tsr_generator *generator, tsr__flight **out) TSR_NODISCARD;
/* Returns how many passes are recorded before a step takes the oldest one. */
int tsr__flight_ahead(const tsr__flight *flight);
/* Sets *flight to NULL. */
void tsr__flight_destroy(tsr__flight **flight);
/* Computes the next token of each of these sequences, of which only the last token is not in the
 * cache yet: tokens[count]. Takes them from the oldest pass in flight. If `more` is set, passes for
 * later steps are recorded first. *chosen is false if the device cannot choose the tokens; nothing
 * is in flight then, and the cache is as before. Errors: those of recording a pass. */
tsr_status tsr__flight_step(tsr_generator *generator, int count, const int *numbers, bool more,
                            int32_t *tokens, bool *chosen) TSR_NODISCARD;
/* Takes the tokens of all passes in flight back from the cache. */
void tsr__flight_discard(tsr_generator *generator);

/* draft.c */

/* Creates generator->drafts, which stays NULL if the params do not want drafts. */
tsr_status tsr__drafts_create(tsr_generator *generator) TSR_NODISCARD;
/* Sets *drafts to NULL. */
void tsr__drafts_destroy(tsr__drafts **drafts);
/* If a sequence's last token is the draft that follows in the cache, copies the logits after it to
 * logits[vocabulary], adds 1 to `seen`, and returns true. If the next token has been chosen
 * already, `chosen` becomes it. Otherwise drops its drafts. */
bool tsr__drafts_take(tsr_generator *generator, int number, float *logits);
/* draft_model.c: forgets the pieces of texts that finding drafts keeps, after an error. */
void tsr__drafts_forget_prefixes(const tsr_generator *generator);
/* Takes a sequence's drafts, or those of all sequences, from the cache. Returns whether there were
 * any. */
void tsr__drafts_drop(tsr_generator *generator, int number);
bool tsr__drafts_drop_all(tsr_generator *generator);
/* The same for a sequence that does not go on with tokens chosen ahead: it has `length` tokens now.
 */
void tsr__drafts_forget(tsr_generator *generator, int number, int64_t length);
/* Finds drafts for a pass of these sequences, of which only the last token is not in the cache.
 * *longest is the largest number. tokens[count] become the tokens of each: the last one and its
 * drafts. The pass then has the ids tsr__drafts_ids [count, longest + 1], and a row of logits for
 * each, of the sequences tsr__drafts_numbers [count · (longest + 1)], at tsr__drafts_logits. */
tsr_status tsr__drafts_propose(tsr_generator *generator, int count, const int *numbers,
                               int64_t *tokens, int *longest) TSR_NODISCARD;
/* Prepares a pass of a sequence with more than `after` drafts, the next number that there can be,
 * and returns it; 0: there are no more, or there is no room. The pass only builds kernels. */
int tsr__drafts_warm_up(tsr_generator *generator, int number, int after);
/* Builds the kernels of a draft_model that this rank has. */
tsr_status tsr__drafts_warm_up_model(tsr_generator *generator, int number) TSR_NODISCARD;
const int32_t *tsr__drafts_ids(const tsr_generator *generator);
const int *tsr__drafts_numbers(const tsr_generator *generator);
float *tsr__drafts_logits(const tsr_generator *generator);
/* Keeps the logits of a pass for this step and later ones, and notes how long it took. */
void tsr__drafts_keep(tsr_generator *generator, int count, const int *numbers, int longest,
                      uint64_t ns);
/* Returns the logits after the last token of a sequence that the pass had. */
const float *tsr__drafts_first(const tsr_generator *generator, int number);
/* Returns whether the next token of one of these sequences needs this file. */
bool tsr__drafts_are_on(const tsr_generator *generator, int count, const int *numbers);
/* Returns whether a step that begins has no drafts, and needs not agree on how many the next one
 * has. */
bool tsr__drafts_are_quiet(tsr_generator *generator);
/* Sets how many drafts passes have. */
void tsr__drafts_set(tsr_generator *generator, int32_t length);

/* draft_next.c: keeps what a pass has computed for its tokens, features [rows, tokens, width], for
 * the layer that predicts further tokens: counts[i] tokens, or all if it is NULL, of sequence
 * numbers[i · step], which begin `ahead` tokens after those that it has seen. Does nothing without
 * such a layer. */
tsr_status tsr__drafts_keep_features(tsr_generator *generator, int rows, const int *numbers,
                                     int64_t step, const int64_t *counts, int64_t ahead,
                                     const tsr_tensor *features) TSR_NODISCARD;

/* draft_ahead.c */

/* Returns how many numbers tsr__drafts_vote may write. */
uint64_t tsr__drafts_votes(const tsr_generator_params *params);
/* Returns the row of a sequence's pass that this step uses if the next step uses another one; −1:
 * no other one. */
int tsr__drafts_next_row(const tsr_generator *generator, int number);
/* Chooses the token at `position` from the logits of a row of the sequence's pass; −1: another
 * pass. */
tsr_status tsr__drafts_draw(const tsr_generator *generator, int number, int row, int64_t position,
                            const float *logits, int32_t *token) TSR_NODISCARD;
/* Writes what ranks exchange beside the tokens of a step, and returns how many numbers these are.
 * On rank 0 of the last stage, chooses the tokens of later steps and finds drafts for the next
 * pass, `wanted` for each sequence, if *status is TSR_OK, and sets it if that fails. */
int tsr__drafts_vote(tsr_generator *generator, int count, const int *numbers, const int32_t *tokens,
                     int wanted, int32_t *votes, tsr_status *status);
/* Keeps what rank 0 has chosen. */
void tsr__drafts_note_votes(tsr_generator *generator, int count, const int *numbers,
                            const int32_t *votes);
/* Returns whether all ranks know the tokens of this step already. */
bool tsr__drafts_all_ready(const tsr_generator *generator, int count, const int *numbers);

/* draft_pace.c */

/* Notes how long building kernels for drafts has taken. */
void tsr__drafts_note_warm_up(tsr_generator *generator, uint64_t ns);
/* Notes how long this rank took for the tokens of a step, with what the draft_model did. */
void tsr__drafts_measure(tsr_generator *generator, int tokens, uint64_t ns);
/* Returns how many drafts passes should have, in this rank's opinion. */
int32_t tsr__drafts_wish(const tsr_generator *generator);

/* limits.c */

/* Returns whether a token ends a sequence wherever it is. */
bool tsr__limit_ends(const tsr_generator *generator, const tsr__sequence *sequence, int32_t token);

/* True if the caller's function or a grammar changes the logits of a sequence. Both need the text
 * up to the token that is chosen, and all logits. */
bool tsr__limit_changes(const tsr__sequence *sequence);
/* Gives a new sequence its function and its grammar, which is copied, and allocates what they need.
 */
tsr_status tsr__limit_begin(tsr_generator *generator, const tsr_sequence_params *params,
                            tsr__sequence *sequence) TSR_NODISCARD;
/* Gives a state at the start of a sequence's text; NULL without a grammar. */
tsr_status tsr__limit_restart(const tsr__sequence *sequence, tsr_grammar_state **out) TSR_NODISCARD;
/* Replaces *logits, those of all tokens, by those that the caller's function makes of them, where
 * tokens that the sequence's grammar does not allow have −inf. *stuck is true if it allows none. */
tsr_status tsr__limit_logits(tsr_generator *generator, int number, const float **logits,
                             bool *stuck) TSR_NODISCARD;
/* Reads a token that has been chosen. Returns how that ends the sequence. */
tsr_finish tsr__limit_read(tsr__sequence *sequence, int32_t token);

/* candidates.c */

/* Creates what the last stage's ranks need to exchange candidates. *out stays NULL if the caller
 * wants logits or log-probabilities, or with one rank. */
tsr_status tsr__candidates_create(const tsr_generator *generator,
                                  tsr__candidates **out) TSR_NODISCARD;
/* Sets *candidates to NULL. */
void tsr__candidates_destroy(tsr__candidates **candidates);
/* Computes the logits of one token of each row of features [rows, tokens, width], and sets `chosen`
 * of the rows' sequences, numbers[rows], if their next tokens can be chosen without all logits.
 * Otherwise gathers logits[rows · vocabulary] from all ranks; with drafts, tokens that the
 * sequences' sampling params cannot choose may be −inf. Last stage only. Collective. Waits for the
 * device once, or twice if all logits must be gathered after all. */
tsr_status tsr__candidate_logits(tsr_generator *generator, const tsr_tensor *features,
                                 int64_t token, int rows, const int *numbers,
                                 float *logits) TSR_NODISCARD;
/* Forgets the tokens and interrupts of the previous step. */
void tsr__candidates_begin_step(tsr_generator *generator);
/* Returns whether all ranks know the next tokens of these sequences, so that they need not agree on
 * them. Sets *interrupted then to whether a rank is interrupted. */
bool tsr__candidates_agree(const tsr_generator *generator, int count, const int *numbers,
                           bool *interrupted);

/* schedule.c: steps of generators whose params have `piece`. */

/* Lists the sequences of which only the last token is not in the cache, numbers[*count], and makes
 * room for it in the cache. For this, sequences that were added later may have to wait: their
 * tokens are taken from the cache, and are computed again. */
void tsr__schedule_tokens(tsr_generator *generator, int *count, int *numbers);
/* Returns whether sequences have tokens of a prompt to compute. */
bool tsr__schedule_has_prompts(const tsr_generator *generator);
/* Chooses the prompts of which a step computes a piece, and finds pieces in the prefix cache. Calls
 * `compute` for each: it must compute tokens seen … end − 1 of a sequence, and set `seen`. Stops
 * after an error. */
typedef tsr_status (*tsr__piece_fn)(tsr_generator *generator, int number, int64_t end);
tsr_status tsr__schedule_prompts(tsr_generator *generator, tsr__piece_fn compute) TSR_NODISCARD;
/* Fills in what the stats tell about the present. */
void tsr__schedule_count(const tsr_generator *generator, tsr_generator_stats *stats);

/* same.c */

/* Adds the params of a new generator to its digests. */
void tsr__generator_note_settings(tsr_generator *generator);
/* Adds the last `count` tokens of a sequence, and the sequence's limit, to the digests. */
void tsr__generator_note_tokens(tsr_generator *generator, int number, int64_t count);
/* Adds a new sequence, with all arguments of the call that created it, to the digests. */
void tsr__generator_note_sequence(tsr_generator *generator, int number);
/* Compares the digests of all ranks. If one of them differs, all ranks get TSR_ERR_INVALID, and the
 * error text says what differs and which values this rank has. */
tsr_status tsr__generator_check_same(tsr_generator *generator) TSR_NODISCARD;

#endif
