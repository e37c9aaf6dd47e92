/* The state of a training, and what its command adds. */
#ifndef TSR_CLI_TRAINING_RUN_H
#define TSR_CLI_TRAINING_RUN_H

#include "cli/training/training.h"

/* An option that a checkpoint holds. It is taken from the checkpoint if it has the value `unset`.
 */
typedef enum training_option_kind {
    TRAINING_INTEGER,
    TRAINING_REAL,
    TRAINING_FLAG,
    TRAINING_TEXT,
    TRAINING_INT
} training_option_kind;
typedef struct training_saved_option {
    const char *name;
    training_option_kind kind;
    void *value;
    double unset;
    const char *fixed; /* name on the command line, if the tensors of a checkpoint depend on it */
    bool is_newer; /* checkpoints of older versions lack it; their trainings had the usual value */
} training_saved_option;

typedef struct training_run training_run;

/* A command that trains. */
typedef struct training_kind {
    const char *name;                   /* of the command */
    const char *options_key;            /* of a checkpoint's metadata */
    const training_saved_option *saved; /* ends with an empty one; the common options follow */
    int (*read)(int argc, char **argv); /* reads the arguments into training_chosen */
    int (*check)(void);                 /* refuses options that contradict each other */
    /* Reads all files but the weights: sets `file`, `tokenizer` and `source` of the run, and the
     * options that depend on them. The ranks are connected. */
    tsr_status (*open)(training_run *run);
} training_kind;

/* Runs the command. Returns its exit code. */
int training_main(const training_kind *kind, int argc, char **argv);

/* Losses for the picture. */
typedef struct training_points {
    double *x, *loss; /* [count] */
    int count, capacity;
} training_points;

/* What a process that joins an elastic job must know, and what a checkpoint does not hold. */
typedef struct training_progress {
    int64_t first_step;     /* the number of steps before this run */
    int64_t saved_step;     /* that of the last checkpoint; −1: there is none */
    int64_t evaluated_step; /* that of the last evaluation; −1: there was none */
    int64_t most_ranks;     /* the number of ranks at the start */
    int64_t looked_step;    /* when the ranks last looked for processes that join */
    double first_loss;      /* of the first step of this run */
    double best_loss;       /* the lowest one of held-out rows */
    int64_t evaluations_since_best;
} training_progress;

#define TRAINING_RECENT 20 /* steps whose mean time is reported */

struct training_run {
    const training_kind *kind;
    training_job job;
    training_source source;
    tsr_model_file *file;
    tsr_model_file *first;    /* the first weights of a new model; NULL: random ones */
    tsr_tokenizer *tokenizer; /* NULL: of a recorded run */
    char *tokenizer_json;     /* the tokenizer as a file; NULL: --output gets copies of files */
    char *adapter;            /* the files of the first adapter; NULL: a new one */
    training_model model;
    data_batch *rows;        /* [accumulate]: this rank's rows of a step */
    int64_t step;            /* the number of steps that have been made, also before this run */
    double loss, norm, rate; /* of the last step; loss NaN: not known yet */
    int64_t tokens;          /* of the last step */
    double started;          /* when the last step began */
    bool unreported;         /* the last step has been made, but not reported */
    bool interrupted, stopped_early;
    bool unsaved; /* a checkpoint could not be saved */
    training_progress done;
    const char
        *restart; /* in a job that was started again: what it has reported as "restartable" */
    training_points trained, tested; /* on rank 0 */
    FILE *log;                       /* on rank 0, with --log */
    double seconds[TRAINING_RECENT]; /* times of the last steps */
    int64_t timed;                   /* the number of steps whose time was measured */
    int64_t compiling_step;          /* the step in which kernels are compiled, for no forecast */
    double shown;                    /* when the progress was printed last */
};

/* Returns the seconds since some time in the past, for differences. */
double training_seconds(void);

/* loop.c: makes steps until the run ends, is interrupted or fails. */
tsr_status training_learn(training_run *run);

/* elastic.c */

/* Prepares a process that has joined, or ranks that have changed, for the next step. */
tsr_status training_take_over(training_run *run);
/* Continues without the lost ranks. */
tsr_status training_go_on(training_run *run);
/* Adds processes that have been started in place of lost ones. */
tsr_status training_look_for_newcomers(training_run *run);
/* Tells the launcher that it may start all ranks again if the training is lost, and takes the
 * checkpoint if it has done so. */
void training_allow_restart(training_run *run);

/* report.c: reports the last step, which took `seconds`; 0: not to be used for forecasts. */
void training_report_step(training_run *run, double seconds);
/* Reports the last step if that has not been done. */
void training_report_later(training_run *run);
void training_report_evaluation(training_run *run, double loss);
tsr_status training_log_open(training_run *run);
tsr_status training_log_close(training_run *run);
tsr_status training_draw(const training_run *run);
void training_points_free(training_points *points);

/* checkpoint.c */

/* Completes the options by those of the checkpoint --resume. With --parts all ranks of `world` call
 * it; otherwise `world` is NULL. Returns an exit code. */
int training_checkpoint_options(const training_kind *kind, tsr_comm *world);
tsr_status training_checkpoint_save(training_run *run);
tsr_status training_checkpoint_load(training_run *run);

/* sample.c: prints what the model writes after the prompt --sample-every. */
tsr_status training_sample(training_run *run);

/* output.c: writes the adapter, or with --full the model, to --output. */
/* Fails if a path of the options cannot be written. `first`: also those of rank 0 alone. */
tsr_status training_output_check(bool first);
tsr_status training_output_write(training_run *run);

#endif
