/* The drafts of a generator, which the files draft*.c share. */
#ifndef TSR_MODEL_GENERATE_DRAFT_H
#define TSR_MODEL_GENERATE_DRAFT_H

#include "model/generate/generator.h"

#define TSR__DRAFT_LARGEST 4
#define TSR__DRAFT_SEQUENCES 8 /* with more, a pass has rows enough */

/* The drafts of a sequence. */
typedef struct tsr__drafted {
    int count; /* drafts in the cache behind the sequence's last token */
    int found; /* those of them that were found; the others fill the pass */
    int next;  /* the row of `logits` that the next step uses, 1 … count; 0: there is none */
    int32_t ids[TSR_MAX_DRAFT_TOKENS];
    bool drawn; /* with probabilities, for rejection sampling */
    /* The tokens that follow drafts 1 … ready, which are right. They have been chosen already. */
    int ready;
    int32_t tokens[TSR_MAX_DRAFT_TOKENS];
    int64_t given_at; /* the length at which one of them was given as the next token; 0: none was */
    /* Drafts of the next pass, which must begin when the sequence has planned_at tokens. */
    int planned;
    int64_t planned_at; /* 0: there is no plan */
    bool plan_drawn;
    int32_t plan[TSR_MAX_DRAFT_TOKENS];
} tsr__drafted;

/* The comparison of steps with drafts, 1, and without, 0. */
typedef struct tsr__draft_trial {
    int way;
    bool begins;                        /* the next step that is measured is one of the other way */
    bool tries;                         /* the way is tried; otherwise it is the better one */
    int64_t most;                       /* steps after which the other way may have its turn */
    int64_t steps;                      /* of this way in a row */
    int64_t counted;                    /* those of them whose time is typical */
    double ns;                          /* the time of these */
    double largest[TSR__DRAFT_LARGEST]; /* ns of the longest of these, the longest one first */
    double tokens;                      /* that these gave */
    double time;                        /* ns of all steps of this way in a row */
    int64_t all_tokens;                 /* that they gave */
    double lag_ns;      /* of `time`, that in which a draft_model caught up with the texts */
    double cost[2];     /* ns of a token; 0: unknown */
    double all_time;    /* ns of all steps */
    double loss[2];     /* ns that trials of each way took longer than the other way */
    double expected[2]; /* ns that the latest trial lost, without lag_ns */
    double building_ns; /* of steps that built kernels */
    /* ns that a trial of drafts may take for kernels that are not built yet, such as those for
     * longer texts: as long as the latest trial, or at first all kernels took */
    double expected_building;
    /* `time`, `lag_ns` and `all_tokens` of the first steps with drafts, until there is a cost of
     * those without */
    double first_time, first_lag, first_tokens;
} tsr__draft_trial;

/* The cache of a draft_model, and what it needs; see draft_model.c. */
typedef struct tsr__draft_model tsr__draft_model;
/* The cache of the model's own layer that predicts further tokens; see draft_next.c. */
typedef struct tsr__draft_next tsr__draft_next;

struct tsr__drafts {
    int most;   /* the most drafts of a sequence */
    int length; /* how many a pass computes at present; 0: passes are as without drafts */
    tsr__draft_trial trial;
    float *logits; /* [sequences, most + 1, vocabulary]: of tokens in the cache */
    /* [rows]: of a pass, which has a row for each sequence, and one for each of its drafts */
    float *pass; /* [rows, vocabulary] */
    int32_t *ids;
    int *numbers;
    tsr__drafted *of; /* [sequences] */
    double rate;      /* how often a draft is right if those before it were */
    int rows;         /* sequences of the passes that `cost` is about */
    /* ns of a pass by its number of drafts, with the time that finding these took; and how many
     * passes there were */
    double cost[TSR_MAX_DRAFT_TOKENS + 1];
    int passes[TSR_MAX_DRAFT_TOKENS + 1];
    int64_t latest[TSR_MAX_DRAFT_TOKENS + 1]; /* the latest of all passes that had so many */
    int64_t all_passes;
    tsr__draft_model *model; /* NULL: this rank has no draft_model */
    tsr__draft_next *next;   /* NULL: this rank has no layer that predicts further tokens */
    /* [sequences, most, vocabulary]: of the latest plans; NULL: drafts are not drawn */
    double *probabilities;
    bool sent;            /* one rank finds the drafts, and sends them */
    uint64_t find_ns;     /* the time in which the drafts of the next pass were found */
    uint64_t lag_ns;      /* the time for catching up that was not noted yet */
    bool behind;          /* a draft_model has not caught up with all texts yet */
    uint64_t built;       /* kernels that were built before the last step that was measured */
    int64_t found_tokens; /* of pieces of texts that finding drafts has kept */
    int quiet;            /* steps since ranks agreed on the length last */
};

/* draft.c */

/* Returns the logits after the last token of a sequence and `row` drafts. */
float *tsr__drafts_row(const tsr_generator *generator, int number, int row);
/* A sequence that needs drafts after its first `length` tokens. */
typedef struct tsr__draft_text {
    int number;
    int64_t length;
    int most;   /* drafts that are wanted */
    int count;  /* drafts that were found */
    bool drawn; /* with probabilities; otherwise they are the most likely tokens */
    int32_t ids[TSR_MAX_DRAFT_TOKENS];
} tsr__draft_text;
/* Keeps the drafts of a sequence for its next pass. */
void tsr__drafts_plan(tsr_generator *generator, const tsr__draft_text *text);

/* draft_tokens.c */

/* Returns how many drafts a sequence can have in a pass when it has `length` tokens, `wanted` at
 * most. */
int tsr__drafts_most(const tsr_generator *generator, int number, int64_t length, int wanted);
/* Sets `count` and `drawn` of a text before its drafts are found. */
void tsr__drafts_begin_text(const tsr_generator *generator, tsr__draft_text *text);
/* Returns the probabilities [vocabulary] from which a draft of the last plan of a sequence was
 * drawn. */
double *tsr__drafts_probabilities(const tsr_generator *generator, int number, int draft);
/* Finds the next draft of a text from the logits after those before it. */
tsr_status tsr__drafts_add(tsr_generator *generator, tsr__draft_text *text,
                           const float *logits) TSR_NODISCARD;
/* Reads the drafts that the device has chosen: row i of chosen[t] has draft t of some[i]. Those
 * that follow a row of logits that are not finite are none. */
tsr_status tsr__drafts_read_chosen(tsr_tensor *const *chosen, int rows, tsr__draft_text **some,
                                   int most) TSR_NODISCARD;
/* Records the choice of the most likely tokens of logits [rows, 1, vocabulary]: `results` and *ids
 * i32 [rows, 1]. */
tsr_status tsr__drafts_record_choice(const tsr_model *model, int rows, const tsr_tensor *logits,
                                     const tsr_tensor *results, tsr_tensor **ids) TSR_NODISCARD;

/* draft_pace.c: how many drafts there are, and whether there are any. */

/* Rounds a number of drafts up to one less than a power of two, or to the most that there are, so
 * that kernels are built for few numbers of rows. */
int tsr__drafts_rounded(const tsr__drafts *drafts, int count);
/* Begins with trials of both ways. */
void tsr__drafts_begin_trials(tsr__drafts *drafts);
/* Notes whether a draft was right. */
void tsr__drafts_note_draft(tsr__drafts *drafts, bool right);
/* Notes how long a pass with drafts took. */
void tsr__drafts_note_cost(tsr__drafts *drafts, int rows, int count, uint64_t ns);

/* draft_model.c */

/* Creates the cache of params.draft_model. *out stays NULL if this rank has none. */
tsr_status tsr__draft_model_create(const tsr_generator *generator,
                                   tsr__draft_model **out) TSR_NODISCARD;
/* Sets *model to NULL. */
void tsr__draft_model_destroy(tsr__draft_model **model);
/* Finds drafts. The tokens of the sequences may be changed from `length` on. A sequence of which
 * the model has not computed enough tokens gets none. Collective over the ranks of the
 * draft_model. */
tsr_status tsr__draft_model_find(tsr_generator *generator, int count,
                                 tsr__draft_text *texts) TSR_NODISCARD;
/* Builds the kernels that finding drafts needs, before they are needed. `text` has the first tokens
 * of a sequence of which the draft_model has computed nothing, and nothing is left of its drafts.
 * Collective over the ranks of the draft_model. */
tsr_status tsr__draft_model_warm_up(tsr_generator *generator, tsr__draft_text *text) TSR_NODISCARD;
/* Returns how long it will probably take to compute the tokens that the draft_model lacks; 0
 * without one. */
double tsr__draft_model_catching_up_ns(const tsr_generator *generator);
/* Takes the tokens of a sequence from `length` on from the draft_model's cache. */
void tsr__draft_model_cut(const tsr_generator *generator, int number, int64_t length);

/* draft_choice.c */

/* The memory in which ranks exchange their most likely tokens. */
typedef struct tsr__draft_choice tsr__draft_choice;
/* *out stays NULL with one rank. */
tsr_status tsr__draft_choice_create(const tsr_model *model, tsr__draft_choice **out) TSR_NODISCARD;
/* Sets *choice to NULL. */
void tsr__draft_choice_destroy(tsr__draft_choice **choice);
/* Chooses the most likely token of each row from this rank's logits [rows, 1, …]: tokens[rows].
 * Collective over the model's ranks. Waits for the device. */
tsr_status tsr__draft_choose(tsr__draft_choice *choice, const tsr_model *model, int rows,
                             const tsr_tensor *logits, int32_t *tokens) TSR_NODISCARD;

/* draft_next.c */

/* Creates the cache of the model's layer that predicts further tokens. */
tsr_status tsr__draft_next_create(const tsr_generator *generator,
                                  tsr__draft_next **out) TSR_NODISCARD;
/* Sets *next to NULL. */
void tsr__draft_next_destroy(tsr__draft_next **next);
/* Finds drafts of texts of which only the last token is not in the model's cache. Collective over
 * the last stage's ranks. */
tsr_status tsr__draft_next_find(tsr_generator *generator, int count,
                                tsr__draft_text *texts) TSR_NODISCARD;
/* Builds the kernels that finding drafts needs. A text has been computed. Collective over the last
 * stage's ranks. */
tsr_status tsr__draft_next_warm_up(tsr_generator *generator, int number) TSR_NODISCARD;
/* Forgets the pieces of prompts that the layer's cache keeps. NULL is allowed. */
void tsr__draft_next_forget_prefixes(tsr__draft_next *next, int sequences);
/* Forgets what was computed from the tokens of a sequence from `length` on. */
void tsr__draft_next_cut(const tsr_generator *generator, int number, int64_t length);

#endif
