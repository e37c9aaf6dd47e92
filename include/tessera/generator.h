/* Generating text with a model: several sequences at once, each with its own way to choose tokens.
 *
 *     tsr_generator *generator = NULL;
 *     tsr_generator_create(tsr_generator_params(.model = model, .sequences = 4), &generator);
 *     tsr_generator_add(generator, tsr_sequence_params(.prompt = ids, .prompt_count = n,
 *                                                      .max_tokens = 64), &sequence);
 *     while (tsr_generator_step(generator, &count) == TSR_OK && count > 0)
 *         for (int i = 0; i < count; i++)
 *             … tsr_generator_token(generator, i)->token …
 *
 * All ranks of the model's group must make the same calls in the same order. Every rank gets the
 * same tokens: rank 0 chooses them from the logits of the whole vocabulary, by random numbers that
 * depend on the seed, the sequence's number and the token's position only. The number of ranks
 * therefore changes a result only as far as it changes the rounding of logits.
 *
 * Threads: as for the model's group, except that tsr_generator_interrupt may be called at any time,
 * also from a signal handler. */
#ifndef TESSERA_GENERATOR_H
#define TESSERA_GENERATOR_H

#include "tessera/grammar.h"
#include "tessera/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_GENERATOR_MAX_SEQUENCES 4096
#define TSR_GENERATOR_MAX_AHEAD 16
#define TSR_GENERATOR_MAX_SNAPSHOTS 65536
#define TSR_GENERATOR_USUAL_SNAPSHOTS 16
#define TSR_GENERATOR_WAITS (-1) /* for `ahead` of tsr_generator_params */

/* Choosing tokens ---------------------------------------------------------------------------- */

#define TSR_MAX_TOP_LOG_PROBABILITIES 20

/* What is added to the logit of a token. */
typedef struct tsr_logit_bias {
    int32_t token;
    float bias; /* finite */
} tsr_logit_bias;

/* A token and the logarithm of its probability. */
typedef struct tsr_log_probability {
    int32_t token;
    double log_probability;
} tsr_log_probability;

/* How a token is chosen from logits. The steps are applied in the order of the fields, as in
 * Hugging Face Transformers. */
typedef struct tsr_sampling_params {
    size_t struct_size;
    const tsr_logit_bias *biases; /* [bias_count]: added to logits */
    int bias_count;
    /* The logit of each token that the sequence already has, prompt included, is divided by this if
     * it is positive, and multiplied by this otherwise. 0: 1, which changes nothing. */
    double repetition_penalty;
    /* For each token that has been generated, presence_penalty and frequency_penalty times the
     * number of its occurrences are subtracted from its logit. The first prompt_count tokens of the
     * history are the prompt, which does not count; the generator sets it. */
    double presence_penalty, frequency_penalty;
    int64_t prompt_count;
    /* Logits are divided by this. 0: the most likely token is taken without a draw, the one with
     * the lowest id if several are equal, and the fields below have no effect. */
    double temperature;
    /* Keeps the k most likely tokens, and those that are as likely as the k-th. 0: all. */
    int64_t top_k;
    /* Keeps the smallest set of the most likely tokens whose probabilities add up to this or more.
     * 0: 1, which keeps all. TSR_ZERO keeps the most likely token only. */
    double top_p;
    /* Keeps tokens that are at least this times as likely as the most likely one. 0: all. */
    double min_p;
    /* The token at a position is chosen by the number that tsr_rng_next_double (rng.h) gives at
     * element 2 · position of the stream (seed, the sequence's number). */
    uint64_t seed;
} tsr_sampling_params;
#define tsr_sampling_params(...)                                                                   \
    (&(tsr_sampling_params){.struct_size = sizeof(tsr_sampling_params), __VA_ARGS__})

/* Chooses the token at `position` of the sequence with this number, by logits[count]. `history` has
 * history_count tokens for the repetition penalty. Needs no device. `params` may be NULL. Errors:
 * TSR_ERR_INVALID for params, a NaN among the logits or no logit above −inf, naming the values;
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_sampling_draw(const tsr_sampling_params *params,
                                                   uint64_t number, int64_t position, int64_t count,
                                                   const float *logits, int64_t history_count,
                                                   const int32_t *history, int32_t *token);

/* Generators --------------------------------------------------------------------------------- */

typedef struct tsr_generator tsr_generator;

/* Receives the logits [vocabulary] that follow the token at `position` of a sequence. They are
 * valid during the call. */
typedef void (*tsr_logits_fn)(void *user, int sequence, int64_t position, const float *logits);

#define TSR_MAX_DRAFT_TOKENS 15

/* Where drafts of the next tokens come from. */
typedef enum tsr_draft {
    TSR_DRAFT_NONE = 0,
    /* from the text so far: what followed its last two to four tokens when they occurred before */
    TSR_DRAFT_NGRAM = 1,
    TSR_DRAFT_MODEL = 2, /* from a smaller model, draft_model */
    /* from the first of the model's own layers that predict further tokens; the model must have
     * been opened with next_token of tsr_model_params */
    TSR_DRAFT_MTP = 3
} tsr_draft;

typedef struct tsr_generator_params {
    size_t struct_size;
    tsr_model *model;
    int sequences;   /* the largest number of sequences at the same time; 0: 1 */
    int64_t context; /* the largest length of a sequence; 0: the model's context */
    /* All sequences together can have this many tokens; 0: sequences · context. */
    int64_t cache_tokens;
    /* The dtype of keys and values: f32, f16, bf16, q8_0 or q4_0. 0: f16 if the devices of all
     * ranks have matrix units for it, otherwise f32. With 16 bits, queries of prompts are rounded
     * to them, too, and so are the probabilities and results of their attention, if matrix units
     * compute it; each rounding has a relative error of at most 2^-11 (f16) or 2^-8 (bf16). q8_0
     * and q4_0 need keys and values of multiples of 32 features; docs/models.md has their errors.
     * Logits are reproduced, and compared with those of other devices, with f32. */
    tsr_dtype cache_dtype;
    /* The most tokens of a prompt that are computed in one pass. 0: 512 on one rank with a GPU of
     * at least 64 processors, otherwise 256, or fewer if the model has stages, so that all stages
     * compute at the same time. */
    int64_t prefill;
    /* Called on every rank with the logits at positions 0 … logits_positions − 1 of each
     * sequence. */
    tsr_logits_fn logits;
    void *user;
    int64_t logits_positions;
    /* Tokens get a log_probability, for which the host computes the exponentials of all logits.
     * Must be the same on all ranks. */
    bool log_probabilities;
    /* How many passes for later tokens are submitted before a step waits for its own, so that the
     * device does not wait for the host: the device chooses the tokens of up to 8 sequences, and
     * the next pass reads them from its memory. The tokens are the same as without. When a sequence
     * ends or is added, up to this many passes have been computed in vain, and are taken back from
     * the cache. TSR_GENERATOR_WAITS: none; the host chooses each token from its logits. 0: 2 on
     * GPUs, none on CPU drivers, where host and device share the processors.
     *
     * Steps wait as if this were TSR_GENERATOR_WAITS with several ranks or stages, with
     * log_probabilities, biases, presence_penalty, frequency_penalty, a grammar or a function that
     * changes logits, for positions whose logits the caller gets, for more than 8 sequences, and if
     * the kernel choose has failed its self-test (`tessera devices` shows it, and a warning is
     * logged). */
    int ahead;
    /* Schedules prompts and the cache's pages, as servers need it. A step then computes at most
     * this many tokens of prompts, so that a long prompt delays the tokens of other sequences by
     * one piece only. Steps take the prompts in turn. A sequence whose prompt is not complete gets
     * no token, so a step may give none although sequences go on (`running` of
     * tsr_generator_stats). Prompts are divided at multiples of the piece. When the cache has too
     * few free pages, the sequence that was added last waits until there are enough, and its tokens
     * are computed again; ended sequences lose their pages first. A sequence is limited to the
     * tokens of the whole cache. 0: a step computes all prompts as a whole, and fails if it has too
     * few pages. */
    int64_t piece;
    /* Keeps the keys and values of prompts after their sequences have been removed, as long as no
     * sequence needs the pages. A prompt that begins with the same tokens uses their whole pieces
     * again. The tokens and log-probabilities have the same bits as without. Needs `piece`, a
     * multiple of 64 or less than that, and no `logits`. Context ranks make a piece longer, so that
     * each has whole pages of it. If layers have states (delta nets), pieces
     * are found up to the last one whose end has a snapshot of them. */
    bool prefix_cache;
    /* Speculation: passes for the next tokens also compute what is likely to follow them, up to
     * draft_tokens tokens of each of at most 8 sequences, so that one pass, and one set of
     * collective operations, may give the tokens of several steps. Tokens are chosen by the same
     * draws as without, from logits that differ by rounding only, because passes with more rows
     * use other kernels. How many drafts there are follows how often they were right and what
     * passes cost; steps with and without drafts are compared from time to time, and most steps are
     * of the faster kind. Must be the same on all ranks. */
    tsr_draft draft;
    int draft_tokens; /* at most TSR_MAX_DRAFT_TOKENS; 0: 4 */
    /* With TSR_DRAFT_MODEL: a model with the same vocabulary and one stage. Either all ranks of
     * `model` have it, which then must have one stage, and divide it in a group of their own; or
     * rank 0 of the last stage has it alone, in a group of one rank, and sends the drafts with the
     * tokens that it chooses; the other ranks then give NULL. It must outlive the generator, which
     * has a second cache of the same number of tokens for it. */
    tsr_model *draft_model;
    /* With TSR_DRAFT_MODEL and TSR_DRAFT_MTP: drafts of sequences with a temperature are drawn,
     * too, and are accepted
     * as in "Fast Inference from Transformers via Speculative Decoding" (Leviathan et al. 2023):
     * with the probability p / q, if that is less than 1, where q is that of the draft by
     * what finds drafts and p that by the model, both after the filters of tsr_sampling_params. If
     * one is not, its token is drawn from the tokens where p > q, with probabilities p − q. More
     * drafts are accepted, and the tokens have the same distribution as without drafts; but they
     * are other tokens, and depend on how many drafts passes have. Sequences with a grammar or a
     * function that changes logits are as without this. Must be the same on all ranks. */
    bool rejection_sampling;
    /* With prefix_cache and layers with states: how many snapshots are kept, each as large as a
     * sequence's states. The least recently used ones leave first. 0: TSR_GENERATOR_USUAL_SNAPSHOTS
     */
    int snapshots;
} tsr_generator_params;
#define tsr_generator_params(...)                                                                  \
    (&(tsr_generator_params){.struct_size = sizeof(tsr_generator_params), __VA_ARGS__})

/* Creates a generator without sequences, and allocates its cache. Errors: TSR_ERR_INVALID naming
 * the value, those of tsr_kv_cache_create. */
TSR_API TSR_NODISCARD tsr_status tsr_generator_create(const tsr_generator_params *params,
                                                      tsr_generator **out);
/* Destroys a generator and sets *generator to NULL. NULL is allowed. Not collective. */
TSR_API void tsr_generator_destroy(tsr_generator **generator);

/* Changes the logits [vocabulary] from which a sequence's next token is chosen; tokens[count] are
 * the prompt and what has been generated. */
typedef void (*tsr_logits_process_fn)(void *user, int sequence, int64_t count,
                                      const int32_t *tokens, float *logits);

typedef struct tsr_sequence_params {
    size_t struct_size;
    const int32_t *prompt; /* [prompt_count], at least one token. Copied */
    int64_t prompt_count;
    const tsr_sampling_params *sampling; /* copied; NULL: the most likely tokens */
    uint64_t number;    /* selects the stream of random numbers (see tsr_sampling_params) */
    int64_t max_tokens; /* tokens to generate; 0: until the context is full */
    /* Tokens that end the sequence: the model's end tokens, unless ignore_end is set, and those in
     * stop[stop_count], which is copied */
    bool ignore_end;
    const int32_t *stop;
    int stop_count;
    /* The last tokens of the prompt that were generated before, as by another generator:
     * presence_penalty and frequency_penalty count them */
    int64_t generated_count;
    /* The sequence's tokens get a log_probability, and the most likely tokens at their position, at
     * most TSR_MAX_TOP_LOG_PROBABILITIES, get theirs, too. The latter needs the former. */
    bool log_probabilities;
    int top_log_probabilities;
    /* What the generated text must be, and how far it has been read: copied. Tokens that the
     * grammar does not allow get the logit −inf after `process`, and before anything else is
     * applied. Where the text may end, the tokens that end the sequence are allowed, and those of
     * tsr_tokenizer_is_end end it in any case. Where nothing more is possible, it ends with
     * TSR_FINISH_GRAMMAR. The host chooses the tokens of a step in which a sequence has a grammar,
     * from all logits. The grammar must outlive the sequence; steps use it in the calling thread.
     * NULL: any text. */
    const tsr_grammar_state *grammar;
    /* The sequence's only adapter (lora.h), enabled or not. It is attached to the model's stack,
     * and must not be trainable or sharded, have an adapter of the head, change, or be destroyed,
     * as long as the sequence exists. A pass may have sequences with different adapters. NULL: all
     * adapters that are enabled, of which there may be only one while other sequences have one of
     * their own. */
    struct tsr_lora *lora;
    /* A logits processor: called with process_user before each choice, in tsr_generator_step, on
     * the rank that chooses tokens (rank 0 of the last stage), and before the grammar and the
     * sampling params are applied. A token with the logit −inf is not chosen. If no other is left,
     * a sequence with a grammar ends with TSR_FINISH_STUCK; without one, the step fails with
     * TSR_ERR_INVALID, as it does for NaN and +inf. It must not call functions of the generator,
     * and is called again for a position whose choice an interrupt has taken back. process_user
     * must last as long as the sequence. log_probability is that of the model's logits. The host
     * chooses the tokens of a step in which a sequence has a function, from all logits. All ranks
     * must give one, or none. */
    tsr_logits_process_fn process;
    void *process_user;
} tsr_sequence_params;
#define tsr_sequence_params(...)                                                                   \
    (&(tsr_sequence_params){.struct_size = sizeof(tsr_sequence_params), __VA_ARGS__})

/* Adds a sequence. It can be added at any time, also while others are being generated; the next
 * step computes its prompt, so this call does not wait. Sequences are numbered 0 … sequences − 1; a
 * removed sequence's number is used again. Errors:
 * TSR_ERR_INVALID for a prompt that is empty, longer than the context or has an id outside the
 * vocabulary, for wrong sampling params, a grammar of a tokenizer with more tokens than the
 * vocabulary, or if there are `sequences` sequences already;
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_generator_add(tsr_generator *generator,
                                                   const tsr_sequence_params *params, int *out);
/* Goes on with a sequence that has ended for any reason: appends tokens[count], which are copied,
 * and generates up to max_tokens more; 0: until the context is full. Tokens in the cache are not
 * computed again. The other params of the sequence stay; the generated text is read by its grammar
 * from the state that tsr_generator_add got. The next step computes the tokens, so this
 * call does not wait. Errors: TSR_ERR_INVALID if there is no such sequence or it has not ended, if
 * there is no token or one has an id outside the vocabulary, if the sequence would be longer than
 * the context, or for a negative max_tokens; TSR_ERR_NO_MEMORY. After an error the sequence has not
 * changed. */
TSR_API TSR_NODISCARD tsr_status tsr_generator_continue(tsr_generator *generator, int sequence,
                                                        int64_t count, const int32_t *tokens,
                                                        int64_t max_tokens);
/* Removes a sequence. Errors: TSR_ERR_INVALID if there is no such sequence. */
TSR_API TSR_NODISCARD tsr_status tsr_generator_remove(tsr_generator *generator, int sequence);

typedef enum tsr_finish {
    TSR_FINISH_NONE = 0,       /* the sequence goes on */
    TSR_FINISH_TOKEN = 1,      /* the token ends the sequence */
    TSR_FINISH_MAX_TOKENS = 2, /* the sequence has got max_tokens tokens */
    TSR_FINISH_CONTEXT = 3,    /* the context is full */
    TSR_FINISH_INTERRUPT = 4,  /* tsr_generator_interrupt was called; there is no token */
    TSR_FINISH_GRAMMAR = 5,    /* the text is complete by its grammar, and nothing can follow */
    /* No token can continue the text by its grammar, or `process` has forbidden those that can, or
     * finding them takes too long. There is no token. */
    TSR_FINISH_STUCK = 6
} tsr_finish;

/* Returns "none", "token", "max_tokens", "context", "interrupt", "grammar" or "stuck", or "?" for
 * any other value. The string is in static storage. */
TSR_API const char *tsr_finish_name(tsr_finish finish);

/* A token that a step has generated. */
typedef struct tsr_generated {
    int sequence;
    int32_t token;    /* -1 with TSR_FINISH_INTERRUPT and TSR_FINISH_STUCK */
    int64_t position; /* the position of the token in its sequence */
    /* the logarithm of the token's probability in the softmax of all logits, before any filter; NaN
     * without log_probabilities, 0 if there is no token */
    double log_probability;
    tsr_finish finish;
    int64_t cached; /* tokens of the sequence's prompt that were found in the prefix cache */
    /* [top_count]: the most likely tokens in the softmax of all logits, the most likely one first,
     * if top_log_probabilities of tsr_sequence_params is set. Valid until the next step */
    const tsr_log_probability *top;
    int top_count;
} tsr_generated;

/* Generates the next token of each sequence that has not ended: computes the tokens that have not
 * gone through the model yet: the prompts of new sequences, and for all other sequences together
 * their last token. *count is the number of tokens, one for each of these sequences, in the order
 * of the sequences' numbers; 0 if all sequences have ended. A sequence that has ended stays until
 * it is removed. Blocks until the tokens are chosen. With `piece` of the params, *count may be less
 * (see there).
 *
 * Errors: TSR_ERR_DEVICE_MEMORY if the cache has too few free pages (removing a sequence helps;
 * does not happen with `piece`),
 * TSR_ERR_INVALID for logits that are NaN or, with `process`, +inf or all −inf, and on all ranks
 * before anything is computed if the ranks have given different params, prompts or sampling params;
 * those of tsr_layer_forward. After an error of a pass, remove all sequences. */
TSR_API TSR_NODISCARD tsr_status tsr_generator_step(tsr_generator *generator, int *count);
/* Returns token `index` of the last step that succeeded, or NULL if there is none. It is valid
 * until the next step. */
TSR_API const tsr_generated *tsr_generator_token(const tsr_generator *generator, int index);

/* Ends all sequences on all ranks at the next step, with TSR_FINISH_INTERRUPT. It is enough that
 * one rank calls it. If no sequence is left to continue at the next step, the interrupt has no
 * effect. With drafts and several ranks, tokens that a pass has already given for later steps come
 * first, at most TSR_MAX_DRAFT_TOKENS of each sequence. Safe in signal handlers and other threads.
 */
TSR_API void tsr_generator_interrupt(tsr_generator *generator);

typedef struct tsr_generator_stats {
    size_t struct_size;
    uint64_t prompt_tokens, generated_tokens; /* tokens computed so far */
    uint64_t prompt_ns, generated_ns;         /* the time that computing these took */
    /* For the generated tokens: submissions to the device; how often the host waited for what it
     * needed to go on, which the sums of layers over several ranks are not; and how often no later
     * batch was submitted then, so that the device had nothing to do until the host had gone on */
    uint64_t generated_submissions, generated_waits, generated_idle_waits;
    /* With `piece`: tokens of prompts that were found in the prefix cache instead of computed; how
     * often a sequence had to wait for pages after it had some; and the most tokens of prompts that
     * one step has computed */
    uint64_t cached_tokens, preemptions, most_step_tokens;
    /* At present: sequences that have not ended; those among them that have no pages; the cache's
     * pages; those that nothing uses; and those of the prefix cache */
    int64_t running, waiting, pages, free_pages, prefix_pages;
    /* With `draft`: drafts that were computed, and those of them that were chosen. */
    uint64_t drafted_tokens, accepted_tokens;
    /* Passes for generated tokens: those that had drafts, and the others; and the time that finding
     * drafts took on this rank with TSR_DRAFT_MODEL and TSR_DRAFT_MTP, which is also in the times
     * above. */
    uint64_t drafted_passes, plain_passes, draft_ns;
} tsr_generator_stats;
/* Errors: TSR_ERR_INVALID for a NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_generator_get_stats(const tsr_generator *generator,
                                                         tsr_generator_stats *out);

#ifdef __cplusplus
}
#endif

#endif
