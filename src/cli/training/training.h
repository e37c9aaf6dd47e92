/* What tessera finetune and tessera train share: the training of an adapter of a model, of its
 * layers, or of a new model.
 *
 * A step learns from `batch` rows of `context` tokens, in `accumulate` micro-batches. The ranks are
 * stages of a pipeline, and each stage is a grid of data-parallel and tensor-parallel ranks. Which
 * rows a step has depends on the seed and on the step's number only, so that a run can be resumed
 * with any other grid. */
#ifndef TSR_CLI_TRAINING_TRAINING_H
#define TSR_CLI_TRAINING_TRAINING_H

#include <stdio.h>

#include "cli/lib/model.h"
#include "cli/lib/say.h"
#include "cli/lib/stages.h"
#include "cli/training/rows.h"
#include "tessera/lora.h"
#include "tessera/tessera.h"

/* If the call fails, returns its status from the calling function. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const tsr_status status_ = (call);                                                         \
        if (status_ != TSR_OK)                                                                     \
            return status_;                                                                        \
    } while (0)

/* Options (options.c) -------------------------------------------------------------------------- */

#define TRAINING_UNSET (-1) /* a number that was not given, where 0 is a value */

/* The files of --data. */
typedef struct training_files {
    const char **paths; /* [count] */
    double *weights;    /* [count] */
    int count;
} training_files;

/* The sizes of a new model. 0: not given. */
typedef struct training_shape {
    const char *config; /* a config.json, or a recorded run, that has all of them; NULL: the values
                         * below */
    const char *init;   /* the first weights; NULL: random ones */
    const char *style;
    bool bias;
    int64_t layers, heads, kv_heads, width, inner, experts, experts_used;
} training_shape;

/* The values of the options of both commands. A number that was not given is 0 or TRAINING_UNSET,
 * until training_options_complete replaces it by its default. */
typedef struct training_options {
    const char *model; /* NULL: a new one */
    /* what to learn from */
    training_files data;
    const char *held_out_file; /* NULL: the part `held_out` of the data */
    double held_out;
    bool held_out_given; /* on the command line */
    tsr_chat_format format;
    bool loss_on_all, skip_bad, cut, unpacked, unshuffled;
    const char *text, *reference;
    const char *tokenizer, *separator; /* of tessera train */
    const char *offsets; /* the recorded run that says where rows start; NULL: they are shuffled */
    const char
        *characters; /* the vocabulary as a tokenizer.json; NULL: not known, or another one */
    bool dpo;
    double beta;
    /* what is trained */
    training_shape shape; /* of a new model */
    bool full;            /* the layers, not an adapter */
    int64_t rank;
    double alpha, dropout;
    bool rank_stabilised, dora;
    int64_t passes; /* of a checkpoint: those that were made, of which masks of dropout depend */
    unsigned targets;
    const char *layers; /* NULL: all */
    tsr_dtype dtype;
    /* how */
    int64_t batch, context, accumulate, steps, epochs, seed, warmup;
    int64_t decay_steps; /* the step that has final_rate */
    tsr_schedule_kind schedule;
    double learning_rate, final_rate, weight_decay, clip, beta1, beta2, epsilon;
    double balance, bias_rate; /* of experts */
    double layer_dropout;      /* of tessera train */
    bool recompute;
    tsr_precision precision;
    int64_t evaluate_every, evaluate_rows, patience;
    const char *sample; /* the prompt of texts that are written between steps; NULL: none */
    /* what is written */
    const char *output, *log, *curve, *checkpoint, *resume;
    int64_t checkpoint_every;
    /* the ranks */
    cli_stages stages;
    int64_t data_parallel, context_parallel;
    bool fsdp, elastic, experts_over_data;
    tsr_shard_kind strategy; /* of `fsdp` */
    bool parts;              /* checkpoints have a file for each rank, on its host */
    tsr_dtype wire;
    const char *device;
    double timeout;
} training_options;

extern training_options training_chosen;
extern const char *training_name; /* of the command */

/* Reads the value of --schedule into the tsr_schedule_kind at `user`. */
bool training_read_schedule(void *user, const char *value, char *problem, size_t size);
/* Reads FILE:W into the training_files at `user`, and FILE into those of training_read_file. */
bool training_read_weighted_file(void *user, const char *value, char *problem, size_t size);
bool training_read_file(void *user, const char *value, char *problem, size_t size);
/* Reads --held-out. */
bool training_read_held_out(void *user, const char *value, char *problem, size_t size);
/* Returns whether `path`, which may be NULL, ends in .gguf. */
bool training_is_gguf(const char *path);
/* Removes the slashes at the end of --output. */
void training_strip_slashes(void);
/* Refuses options of both commands that contradict each other. Returns an exit code. */
int training_options_check(void);
/* Replaces numbers that were not given by their defaults. */
void training_options_complete(void);

/* Errors --------------------------------------------------------------------------------------- */

/* Keeps a sentence about an error that the library does not find. Returns TSR_ERR_INVALID. */
tsr_status training_fail(const char *format, ...) CLI_PRINTF(1, 2);
/* Returns the sentence of the last error. */
const char *training_problem(void);
/* Says that the last error was printed when it was found. Returns TSR_ERR_INVALID. */
tsr_status training_reported(void);
/* Returns whether the last error was printed when it was found. */
bool training_is_reported(void);

/* The job (job.c) ------------------------------------------------------------------------------ */

typedef struct training_job {
    tsr_comm *world;
    tsr_comm *replica; /* the ranks that have one copy of the model together, of all stages */
    tsr_comm *stages;  /* one rank of each stage; NULL: one stage */
    tsr_comm *data; /* the ranks that have the same part of the model, and other rows or tokens */
    int rank, ranks;
    int stage, stage_count, data_rank, data_ranks;
    /* So many data-parallel ranks that follow each other have the same rows, of which each has some
     * tokens. */
    int context_ranks;
    tsr_device *device;
    tsr_stream *stream;
    tsr_group *tensor_group, *data_group;
    tsr_group *context_group;  /* the ranks that have the same rows; NULL: only this one */
    tsr_group *old_data_group; /* the one before the last change of ranks; NULL: none */
    bool joined;               /* this process has joined a job that was running */
} training_job;

/* Connects to the other ranks, and sets `rank` and `ranks`. Call training_job_finish afterwards,
 * also on failure. */
tsr_status training_job_join(training_job *job);
/* Opens the device, and divides the ranks. */
tsr_status training_job_init(training_job *job);
void training_job_finish(training_job *job);
/* Keeps those tokens of rows that this one of the context ranks has. */
tsr_status training_job_divide(const training_job *job, data_batch *rows);
/* The number of rows of a micro-batch that this rank has, and the first of them. */
int64_t training_job_rows(const training_job *job);
int64_t training_job_first_row(const training_job *job);
/* Continues without the lost ranks after an error for which training_job_has_lost is true. Sets
 * *again if a further rank was lost meanwhile; the call must then be repeated. */
tsr_status training_job_shrink(training_job *job, bool *again);
/* Adds up to `count` processes that wait to join. Sets *grown to whether there were any. */
tsr_status training_job_grow(training_job *job, int count, bool *grown);
/* Destroys the group of before the last change of ranks. Call it when nothing uses that any more.
 */
void training_job_settle(training_job *job);
bool training_job_has_lost(tsr_status status);
/* Returns whether a launcher has started this process in place of one that has failed. */
bool training_job_is_joining(void);
/* Gives `value`, which only the last stage has, to all stages. */
tsr_status training_job_share(const training_job *job, double *value);

/* Rows ----------------------------------------------------------------------------------------- */

typedef struct training_source training_source;

/* Where rows come from. Each command has its own sources. */
struct training_source {
    int64_t context;
    int64_t held_out; /* rows for evaluation */
    bool is_weighted; /* losses have weights, so that they are not those of tokens */
    void *user;
    /* Gives rows first … first + count − 1 of the endless sequence of rows, or of those for
     * evaluation, which are padding without labels from `held_out` on. */
    tsr_status (*get)(const training_source *self, data_part part, int64_t first, int64_t count,
                      data_batch *out);
    /* Gives the number of labels of these rows. */
    tsr_status (*count)(const training_source *self, data_part part, int64_t first, int64_t count,
                        int64_t *out);
    void (*close)(void *user);
};

/* The model (model.c) -------------------------------------------------------------------------- */

typedef struct training_model {
    training_job *job;
    const tsr_model_config *config;
    tsr_model *base;  /* whose layers are frozen; NULL with --full */
    tsr_lora *lora;   /* the adapter of the base */
    tsr_stack *own;   /* the layers that --full trains */
    tsr_stack *stack; /* the layers of this stage: those of `base`, or `own` */
    tsr_optimizer *optimizer;
    tsr_pipeline *pipeline;
    bool first, last;             /* whether this stage is the first, or the last */
    tsr_dtype features;           /* between stages */
    tsr_tensor *loss;             /* f32 [1], of the last stage: that of a step */
    int first_layer, layer_count; /* of `own` */
    /* Loads of experts (experts.c): the most experts of a layer, or 0 if loads are not counted; the
     * auxiliary loss of the last step, whatever its factor, and the tokens of each expert, [layers,
     * experts]. */
    int64_t experts;
    double auxiliary, *loads;
    tsr_tensor *balance; /* [experts]: the gradient of the auxiliary loss */
} training_model;

/* Opens the layers of the model that `file` describes. Those that are trained get the weights in
 * `weights`, or random ones if that is NULL; to others it attaches the adapter in the files
 * `adapter`, or a new one if that is NULL. Call training_model_finish afterwards, also on failure.
 */
tsr_status training_model_init(training_model *model, const tsr_model_file *file,
                               const tsr_model_file *weights, const char *adapter,
                               training_job *job);
/* Divides what is trained among the ranks of an elastic job that have changed. May be called again
 * after an error, once the ranks have changed again. */
tsr_status training_model_rebuild(training_model *model);
void training_model_finish(training_model *model);

/* Passes (passes.c) ---------------------------------------------------------------------------- */

/* Makes the passes of a step, and gives the mean loss of all labels of all ranks. With `learn`,
 * computes gradients. rows[micro_batches] are this rank's. `counted` is the number of labels of all
 * ranks. */
tsr_status training_pass(training_model *model, int micro_batches, const data_batch *rows,
                         int64_t counted, bool learn, double *loss);

#endif
