/* Code that the commands that generate with a model share: their options, and opening the model on
 * all ranks. */
#ifndef TSR_CLI_INFERENCE_INFERENCE_H
#define TSR_CLI_INFERENCE_INFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/lib/model.h"
#include "cli/lib/options.h"
#include "cli/lib/stages.h"
#include "tessera/tessera.h"

/* Which ranks have the model that finds drafts. */
typedef enum inference_draft_ranks {
    INFERENCE_DRAFT_ONE, /* the one that chooses the tokens */
    INFERENCE_DRAFT_ALL  /* all of them divide it */
} inference_draft_ranks;

/* Where drafts come from. */
typedef struct inference_draft {
    cli_draft of;
    inference_draft_ranks ranks;
    bool rejection;
} inference_draft;

/* An adapter of --lora: PATH or PATH:SCALE, or with a name NAME=PATH. */
typedef struct inference_adapter {
    char *name; /* free it with free(); NULL: none, and all sequences have the adapter */
    char *path; /* free it with free() */
    double scale;
} inference_adapter;
#define INFERENCE_MAX_ADAPTERS 64

typedef struct inference_options {
    const char *model;
    inference_adapter adapters[INFERENCE_MAX_ADAPTERS];
    int adapter_count;
    int64_t max_tokens;
    bool greedy;
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, seed;
    tsr_dtype dtype, cache_dtype, wire;
    tsr_chat_format format;
    int64_t context, prefill;
    cli_stages stages;
    bool allow_int8;
    tsr_precision precision;
    inference_draft draft;
    const char *device;
    double timeout;
} inference_options;

/* The values of the options. They are the defaults until the options have been read. */
extern inference_options inference_chosen;

/* Entries for the tables of options of these commands. */
/* clang-format off */
/* Options for choosing tokens. */
#define INFERENCE_SAMPLING_OPTIONS                                                                 \
    {"greedy", NULL, "always take the most likely token", .flag = &inference_chosen.greedy},       \
    {"temperature", "T", "divide logits by T (default: 0.8); 0: as --greedy",                      \
     .real = &inference_chosen.temperature, .low = 0, .high = 1e6},                                \
    {"top-k", "K", "draw from the K most likely tokens (default: 0, all)",                         \
     .integer = &inference_chosen.top_k, .low = 0, .high = 1 << 30},                               \
    {"top-p", "P",                                                                                 \
     "draw from the most likely tokens whose probabilities add up to P (default: 0.95)",           \
     .real = &inference_chosen.top_p, .low = 0, .high = 1},                                        \
    {"min-p", "P",                                                                                 \
     "draw from tokens at least P times as likely as the most likely one (default: 0)",            \
     .real = &inference_chosen.min_p, .low = 0, .high = 1},                                        \
    {"repetition-penalty", "R", "make tokens that were there already less likely (default: 1)",    \
     .real = &inference_chosen.repetition_penalty, .low = 0.001, .high = 1000},                    \
    {"seed", "N", "of the draw; the same seed gives the same text (default: 0)",                   \
     .integer = &inference_chosen.seed, .low = 0, .high = 9e15, .letter = 's'}

/* The format of messages. Call inference_list_formats before printing the help. */
#define INFERENCE_FORMAT_OPTION                                                                    \
    {"format", "NAME", inference_format_help, .read = inference_read_format,                       \
     .user = &inference_chosen.format}

/* Adapters for all sequences. */
#define INFERENCE_LORA_OPTION                                                                      \
    {"lora", "PATH[:SCALE]",                                                                       \
     "add an adapter to the model: a PEFT folder, or a GGUF adapter of llama.cpp, of which SCALE " \
     "multiplies the effect (default: 1); may be repeated",                                        \
     .read = inference_read_adapter}

/* Options for storing the model and its cache. */
#define INFERENCE_DTYPE_OPTIONS                                                                    \
    {"dtype", "TYPE",                                                                              \
     "keep matrices as f32, f16, bf16, or quantised, such as q8_0 (default: as the file has them)",\
     .read = cli_read_matrix_dtype, .user = &inference_chosen.dtype},                              \
    {"cache-dtype", "TYPE", "keep keys and values as f32, f16, bf16, q8_0 or q4_0 (default: f16 if " \
     "the devices have matrix units, otherwise f32)",                                             \
     .read = cli_read_cache_dtype, .user = &inference_chosen.cache_dtype}

/* Options for dividing the work among ranks. */
#define INFERENCE_JOB_OPTIONS                                                                      \
    {"prefill", "N",                                                                               \
     "the most tokens of a prompt in one pass (default: 256; 512 on one large GPU; fewer with "    \
     "stages)",                                                                                    \
     .integer = &inference_chosen.prefill, .low = 1, .high = 1 << 20},                             \
    {"draft", "HOW",                                                                               \
     "compute several tokens in one pass, up to N: those that followed the same text before "      \
     "('ngram' or 'ngram:N'), those of the model's own layer that predicts further tokens "        \
     "('mtp' or 'mtp:N'), or those of a small model with the same vocabulary (MODEL or MODEL:N) "  \
     "(default: none); the text is the same",                                                      \
     .read = cli_read_draft, .user = &inference_chosen.draft.of},                               \
    {"draft-ranks", "WHICH",                                                                       \
     "the model of --draft is on one rank, which sends its drafts, or is divided over all "        \
     "(default: one)",                                                                             \
     .read = inference_read_draft_ranks, .user = &inference_chosen.draft},                         \
    {"draft-rejection", NULL,                                                                      \
     "accept more drafts of mtp or a model by rejection sampling; the text is another one, with "  \
     "the same distribution",                                                                          \
     .flag = &inference_chosen.draft.rejection},                                                   \
    {"allow-int8", NULL,                                                                           \
     "round activations to 8 bits where a GPU multiplies them faster, for q4_0, q5_0 and q8_0",    \
     .flag = &inference_chosen.allow_int8},                                                        \
    {"precision", "P",                                                                             \
     "on GPUs, multiply the features of prompts as f32 ('highest'), as sums of 16-bit numbers "    \
     "('high', the default with weights of 16 bits or less), or as 16-bit numbers ('medium')",     \
     .read = cli_read_precision, .user = &inference_chosen.precision},                             \
    {"rates", "LIST",                                                                              \
     "divide heads and features by the ranks' speeds, such as 3,1, or by measured ones: "          \
     "'measured'; rates of all ranks also divide the layers over stages (default: evenly)",        \
     .read = cli_read_rates, .user = &inference_chosen.stages.rates},                              \
    {"wire", "TYPE",                                                                               \
     "round activations that ranks send each other to f16, bf16 or q8_0, for slow connections "    \
     "(default: they are sent as they are)",                                                       \
     .read = cli_read_matrix_dtype, .user = &inference_chosen.wire},                               \
    {"stages", "S",                                                                                \
     "divide the layers over S stages, which are groups of ranks, for slow connections between "   \
     "them (default: 1); prompts pass through them one after the other",                           \
     .integer = &inference_chosen.stages.count, .low = 1, .high = TSR_MAX_COMM_SIZE},              \
    {"context-parallel", "C",                                                                      \
     "divide the tokens of prompts, and the cache, over C ranks, or over C groups of ranks that "  \
     "divide the model (default: 1)",                                                              \
     .integer = &inference_chosen.stages.context_ranks, .low = 1, .high = TSR_MAX_COMM_SIZE},      \
    {"stage-layers", "LIST",                                                                       \
     "layers of each stage, such as 10,12 (default: all stages need equally long for a token)",    \
     .read = cli_read_layers, .user = &inference_chosen.stages.layers},                            \
    {"experts", "HOW",                                                                             \
     "ranks have a part of each expert (inside) or some experts (whole), or hosts some and their " \
     "ranks parts of these (mixed); auto (default): inside, unless its quantisation blocks make "  \
     "the parts too unequal: then whole, or mixed if that is faster; auto:HOSTS or mixed:HOSTS "   \
     "says how many hosts there are; host, or host:LAYERS for the first layers, keeps experts in " \
     "the host's memory, also as whole,host",                                                      \
     .read = cli_read_experts, .user = &inference_chosen.stages.experts},                          \
    {"memory", "LIST",                                                                             \
     "device memory of each rank for weights and cache, such as 8G,12G, or one value for all; "    \
     "layers move from stages that have too little to others (default: what each device has left)",\
     .read = cli_read_memory, .user = &inference_chosen.stages.memory},                            \
    {"device", "DEVICE",                                                                           \
     "index, UUID or part of the name (default: TESSERA_DEVICE, or the fastest)",                  \
     .text = &inference_chosen.device},                                                            \
    {"timeout", "SECONDS", "longest wait for another rank (default: 600)",                         \
     .real = &inference_chosen.timeout, .low = 0.1, .high = 1e6}
/* clang-format on */

/* The part of INFERENCE_LORA_OPTION. */
bool inference_read_adapter(void *user, const char *text, char *problem, size_t size);
/* The same for NAME=PATH[:SCALE]. Sequences choose such an adapter. */
bool inference_read_named_adapter(void *user, const char *text, char *problem, size_t size);
void inference_free_adapters(void);

/* The parts of INFERENCE_FORMAT_OPTION. */
extern char inference_format_help[600];
void inference_list_formats(void);
bool inference_read_format(void *user, const char *text, char *problem, size_t size);

/* Reads --draft-ranks into an inference_draft. */
bool inference_read_draft_ranks(void *user, const char *text, char *problem, size_t size);
/* Returns what is wrong with options that have been read, or NULL. */
const char *inference_check_draft(void);

/* Returns params for choosing tokens. */
tsr_sampling_params inference_sampling(void);

/* Reasoning ------------------------------------------------------------------------------------ */

/* Returns whether replies in a format may begin with reasoning. */
bool inference_has_reasoning(const tsr_tokenizer *tokenizer, tsr_chat_format format);
#define INFERENCE_REASONING_GRAMMAR 256 /* bytes */
/* Writes an expression in GBNF of what may come before a call of a tool, or before an answer, in a
 * reply after the header that tsr_chat_encode writes with this `reasoning`; "": nothing. */
void inference_reasoning_grammar(const tsr_tokenizer *tokenizer, tsr_chat_format format,
                                 tsr_chat_reasoning reasoning, char *out, size_t size);
void inference_answer_grammar(const tsr_tokenizer *tokenizer, tsr_chat_format format,
                              tsr_chat_reasoning reasoning, char *out, size_t size);

/* Grammars ------------------------------------------------------------------------------------- */

/* The paths of --grammar and --json-schema; NULL: any text. */
typedef struct inference_grammar_files {
    const char *grammar, *schema;
} inference_grammar_files;
/* clang-format off */
#define INFERENCE_GRAMMAR_OPTIONS(files)                                                           \
    {"grammar", "FILE", "write what this grammar (GBNF) allows", .text = &(files).grammar},        \
    {"json-schema", "FILE", "write JSON that follows this schema", .text = &(files).schema}
/* clang-format on */
/* Reads the grammar. If `before` is not NULL, texts are replies, which begin with this expression
 * in GBNF. *out stays NULL without files. Errors: those of tsr_grammar_create, and for a file that
 * cannot be read; the sentence is in problem[size]. */
tsr_status inference_read_grammar(const tsr_tokenizer *tokenizer,
                                  const inference_grammar_files *files, const char *before,
                                  tsr_grammar **out, char *problem, size_t size);

/* Jobs ----------------------------------------------------------------------------------------- */

/* Opens a model's tokenizer. */
tsr_status inference_open_tokenizer(tsr_tokenizer **out);
/* Writes the tokens that end a text to ids[most], and returns their number; 0 if the tokenizer is
 * NULL. */
int inference_end_tokens(const tsr_tokenizer *tokenizer, int most, int32_t *ids);
#define INFERENCE_MAX_END_TOKENS 64

typedef struct inference_job {
    tsr_comm *comm;
    tsr_comm *stages; /* the ranks with this rank's place in all stages; NULL: one stage */
    tsr_device *device;
    tsr_stream *stream;
    tsr_group *group;
    tsr_group *contexts; /* the ranks that divide sequences with this one; NULL: none */
    tsr_model *model;
    tsr_group *draft_group; /* of draft_model; NULL: this rank has none, or `group` has its ranks */
    tsr_model *draft_model; /* of --draft; NULL: this rank has none */
    tsr_lora *adapters[INFERENCE_MAX_ADAPTERS]; /* those of --lora, in their order */
    int64_t context;                            /* tokens of the longest sequence */
    int snapshots; /* of states, for the prefix cache of the generator; 0: it has none */
    bool first;    /* this is rank 0, which prints */
    /* Called while the weights are read; NULL: rank 0 shows the progress on a terminal */
    void (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;        /* of `progress` */
    char problem[512]; /* an error in the options that the library does not detect; "": none */
} inference_job;

/* Joins the job: creates `comm` and sets `first`, unless that was done before. inference_open does
 * this, too. */
tsr_status inference_join(inference_job *job);
/* Opens the model on this rank's device, with a cache for `sequences` sequences, or for
 * cache_tokens tokens if these are not 0. The length of a
 * sequence is limited to --context tokens. Without this option, the limit is `context` or, if that
 * is less, the context for which the model was trained. If --context is longer than that, rank 0
 * prints a note. The caller must call inference_close even if this fails. */
tsr_status inference_open(inference_job *job, int64_t context, int64_t cache_tokens, int sequences);
/* Opens the model of --draft on the ranks that have it; the others get TSR_OK. inference_open does
 * this. `tokenizer` is the model's, or NULL. */
tsr_status inference_open_draft(inference_job *job, const tsr_tokenizer *tokenizer, int sequences);
/* Closes the models and their groups. inference_open opens it again, on the ranks of `comm`. */
void inference_close_model(inference_job *job);
void inference_close(inference_job *job);
/* Returns the sentence that describes the last error. */
const char *inference_problem(const inference_job *job);

/* Tells `tessera launch`, if there is one, what docs/launching.md describes. */
void inference_report(const char *what);
/* Makes SIGINT and SIGTERM end the generator's sequences at the next token. A second signal ends
 * the process. If `generator` is NULL, restores the earlier handling of the signals. */
void inference_catch_signals(tsr_generator *generator);
/* The exit code of a command that a signal has ended, as shells report it. */
#define INFERENCE_INTERRUPTED 130

#endif
