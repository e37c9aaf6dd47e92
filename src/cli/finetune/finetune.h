/* tessera finetune: trains an adapter of a model, or its layers.
 *
 * A step learns from `batch` rows of `context` tokens, in `accumulate` micro-batches. The ranks are
 * stages of a pipeline, and each stage is a grid of data-parallel and tensor-parallel ranks. Which
 * rows a step has depends on the seed and on the step's number only, so that a run can be resumed
 * with any other grid. */
#ifndef TSR_CLI_FINETUNE_FINETUNE_H
#define TSR_CLI_FINETUNE_FINETUNE_H

#include <stdio.h>

#include "cli/finetune/data.h"
#include "cli/lib/model.h"
#include "cli/lib/say.h"
#include "cli/lib/stages.h"
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

#define FINETUNE_UNSET (-1) /* a number that was not given, where 0 is a value */
#define FINETUNE_BATCH 8    /* the usual number of rows of a step */

/* The values of the options. A number that was not given is 0 or FINETUNE_UNSET, until
 * finetune_options_complete replaces it by its default. */
/* The files of --data. */
typedef struct finetune_files {
    const char **paths; /* [count] */
    double *weights;    /* [count] */
    int count;
} finetune_files;

typedef struct finetune_options {
    const char *model;
    /* what to learn from */
    finetune_files data;
    const char *held_out_file; /* NULL: the part `held_out` of the data */
    double held_out;
    tsr_chat_format format;
    bool loss_on_all, skip_bad, cut, unpacked, unshuffled;
    const char *text, *reference;
    bool dpo;
    double beta;
    /* what is trained */
    bool full;
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
    bool recompute;
    tsr_precision precision;
    int64_t evaluate_every, patience;
    const char *sample; /* the prompt of texts that are written between steps; NULL: none */
    /* what is written */
    const char *output, *log, *curve, *checkpoint, *resume;
    int64_t checkpoint_every;
    /* the ranks */
    cli_stages stages;
    int64_t data_parallel;
    bool fsdp, elastic;
    tsr_dtype wire;
    const char *device;
    double timeout;
} finetune_options;

extern finetune_options finetune_chosen;

/* Reads the arguments into finetune_chosen. Returns an exit code. */
int finetune_options_read(int argc, char **argv);
/* Refuses options that contradict each other. Returns an exit code. */
int finetune_options_check(void);
/* Returns whether `path`, which may be NULL, ends in .gguf. */
bool finetune_is_gguf(const char *path);
/* Replaces numbers that were not given by their defaults. */
void finetune_options_complete(void);
void finetune_options_help(FILE *out);

/* Errors --------------------------------------------------------------------------------------- */

/* Keeps a sentence about an error that the library does not find. Returns TSR_ERR_INVALID. */
tsr_status finetune_fail(const char *format, ...) CLI_PRINTF(1, 2);
/* Returns the sentence of the last error. */
const char *finetune_problem(void);
/* Says that the last error was printed when it was found. Returns TSR_ERR_INVALID. */
tsr_status finetune_reported(void);
/* Returns whether the last error was printed when it was found. */
bool finetune_is_reported(void);

/* The job (job.c) ------------------------------------------------------------------------------ */

typedef struct finetune_job {
    tsr_comm *world;
    tsr_comm *replica; /* the ranks that have one copy of the model together, of all stages */
    tsr_comm *stages;  /* one rank of each stage; NULL: one stage */
    tsr_comm *data;    /* the ranks that have the same part of the model, and other rows */
    int rank, ranks;
    int stage, stage_count, data_rank, data_ranks;
    tsr_device *device;
    tsr_stream *stream;
    tsr_group *tensor_group, *data_group;
    tsr_group *old_data_group; /* the one before the last change of ranks; NULL: none */
    bool joined;               /* this process has joined a job that was running */
} finetune_job;

/* Connects to the other ranks, and sets `rank` and `ranks`. Call finetune_job_finish afterwards,
 * also on failure. */
tsr_status finetune_job_join(finetune_job *job);
/* Opens the device, and divides the ranks. */
tsr_status finetune_job_init(finetune_job *job);
void finetune_job_finish(finetune_job *job);
/* The number of rows of a micro-batch that this rank has, and the first of them. */
int64_t finetune_job_rows(const finetune_job *job);
int64_t finetune_job_first_row(const finetune_job *job);
/* Continues without the lost ranks after an error for which finetune_job_has_lost is true. Sets
 * *again if a further rank was lost meanwhile; the call must then be repeated. */
tsr_status finetune_job_shrink(finetune_job *job, bool *again);
/* Adds up to `count` processes that wait to join. Sets *grown to whether there were any. */
tsr_status finetune_job_grow(finetune_job *job, int count, bool *grown);
/* Destroys the group of before the last change of ranks. Call it when nothing uses that any more.
 */
void finetune_job_settle(finetune_job *job);
bool finetune_job_has_lost(tsr_status status);
/* Returns whether a launcher has started this process in place of one that has failed. */
bool finetune_job_is_joining(void);
/* Gives `value`, which only the last stage has, to all stages. */
tsr_status finetune_job_share(const finetune_job *job, double *value);

/* Rows (source.c) ------------------------------------------------------------------------------ */

/* Where rows come from: --data, or a recorded run. */
typedef struct finetune_source {
    data_set *set; /* NULL: a recorded run */
    int64_t context;
    int64_t held_out; /* rows for evaluation */
    /* Of a recorded run: */
    int32_t *tokens; /* [count]: the text of --text */
    int64_t count;
    int64_t *offsets; /* [offset_count]: where each row starts in `tokens` */
    int64_t offset_count;
} finetune_source;

/* Opens --data, and sets the number of steps if that was not given. If `quiet` is set, names no bad
 * lines. */
tsr_status finetune_source_open(finetune_source *source, const tsr_tokenizer *tokenizer,
                                bool quiet);
void finetune_source_close(finetune_source *source);
/* Gives rows first … first + count − 1, as data_get_batch. */
tsr_status finetune_source_get(finetune_source *source, data_part part, int64_t first,
                               int64_t count, data_batch *out);
/* Gives the number of labels of these rows. */
tsr_status finetune_source_count(finetune_source *source, data_part part, int64_t first,
                                 int64_t count, int64_t *out);

/* reference.c: reads the recorded run --reference: its settings into finetune_chosen, its text and
 * its rows into `source`, and the path of its first adapter, which the caller frees, into
 * *adapter. */
tsr_status finetune_reference_read(finetune_source *source, char **adapter);

/* The model (model.c) -------------------------------------------------------------------------- */

typedef struct finetune_model {
    finetune_job *job;
    const tsr_model_config *config;
    tsr_model *base;  /* whose layers are frozen; NULL with --full */
    tsr_lora *lora;   /* the adapter of the base */
    tsr_stack *own;   /* the layers that --full trains */
    tsr_stack *stack; /* the layers of this stage: those of `base`, or `own` */
    tsr_optimizer *optimizer;
    tsr_pipeline *pipeline;
    bool first, last;   /* whether this stage is the first, or the last */
    tsr_dtype features; /* between stages */
    tsr_tensor *loss;   /* f32 [1], of the last stage: that of a step */
} finetune_model;

/* Opens the model's layers, and attaches the adapter in the files `adapter`, or a new one if that
 * is NULL. Call finetune_model_finish afterwards, also on failure. */
tsr_status finetune_model_init(finetune_model *model, const tsr_model_file *file,
                               const char *adapter, finetune_job *job);
/* Divides what is trained among the ranks of an elastic job that have changed. May be called again
 * after an error, once the ranks have changed again. */
tsr_status finetune_model_rebuild(finetune_model *model);
void finetune_model_finish(finetune_model *model);

/* Passes (passes.c) ---------------------------------------------------------------------------- */

/* Makes the passes of a step, and gives the mean loss of all labels of all ranks. With `learn`,
 * computes gradients. rows[micro_batches] are this rank's. `counted` is the number of labels of all
 * ranks. */
tsr_status finetune_pass(finetune_model *model, int micro_batches, const data_batch *rows,
                         int64_t counted, bool learn, double *loss);

#endif
