/* The command line of gpt. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include "common/common.h"
#include "config.h"
#include "given.h"

typedef struct gpt_options {
    const char *text, *device;
    const char *tokenizer;   /* NULL: tokens are characters */
    const char *separator;   /* of documents; NULL: the text is one */
    const char *given_model; /* folder of the model whose training continues; NULL: none */
    const char *config, *init, *offsets;  /* files of a recorded run; NULL: none */
    const char *load, *checkpoint, *save; /* NULL: none */
    char save_file[4096];                 /* holds `save` if the user has named a folder */
    const char *log, *curve;              /* NULL: none */
    bool parts;                           /* `load` and `checkpoint` are in parts */
    const char *prompt;                   /* NULL: see text_encode() */
    int ranks;                            /* 0: as many as were launched */
    int data, tensor;        /* the grid: data-parallel by tensor-parallel ranks; 0: not given */
    int context;             /* ranks that divide each window; 0: not given */
    gpt_rates tensor_rates;  /* needs a given grid */
    gpt_rates context_rates; /* needs context ranks */
    gpt_stages stages;       /* of a pipeline; count 0: not given */
    const char *strategy;    /* how data-parallel ranks share parameters; "none": each has all */
    gpt_config model;
    gpt_training training;
    tsr_dtype dtype;
    tsr_dtype wire; /* dtype in which tensor-parallel activations are sent; 0: unchanged */
    bool recompute;
    bool experts_over_data;       /* data-parallel ranks divide the experts */
    bool elastic;                 /* continue without lost ranks */
    int eval_every, eval_batches; /* steps between evaluations; batches of each. 0: none */
    int checkpoint_every;         /* steps between checkpoints; 0: only at the end */
    int characters;               /* or tokens of the tokenizer, to write at the end */
    double temperature;           /* 0: always the most likely token */
    int top_k;                    /* draw from the most likely tokens only; 0: from all */
    int workers;
    double timeout_seconds;
    bool help;
    gpt_given given;            /* on the command line */
    bool has_bad_file;          /* gpt_options_complete() has failed because of a file */
    struct json_t *saved_owner; /* the strings that a checkpoint has saved; NULL: none */
} gpt_options;

/* Parses the command line. Until gpt_options_complete() has been called, `out` lacks the model, the
 * training, and the files that describe them. Call gpt_options_free() afterwards. Returns false,
 * with a sentence on standard error, if something is wrong. */
bool gpt_options_parse(int argc, char **argv, gpt_options *out);
/* Completes the options with those that the checkpoint `load` has saved, and with the defaults. An
 * option of the command line replaces a saved one, but must agree with it if it describes the
 * model. `saved`: what gpt_options_print() has printed; NULL: there is no checkpoint. Returns
 * false, with a sentence on standard error, if something is wrong. */
bool gpt_options_complete(gpt_options *options, const char *saved);
void gpt_options_free(gpt_options *options);

/* Gets the tokens of each window that a context rank has. */
tsr_status gpt_options_chunks(const gpt_options *options, int context_rank,
                              tsr_shard_range chunks[2]);

/* Prints the options that describe the model, its text and its training, for
 * gpt_options_complete(), in memory of malloc. On failure returns NULL with a sentence in `error`.
 */
char *gpt_options_print(const gpt_options *options, char *error, size_t error_size);
void gpt_options_help(void);

#endif
