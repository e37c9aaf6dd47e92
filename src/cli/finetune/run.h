/* The state of a run of tessera finetune. */
#ifndef TSR_CLI_FINETUNE_RUN_H
#define TSR_CLI_FINETUNE_RUN_H

#include "cli/finetune/finetune.h"

/* Losses for the picture. */
typedef struct finetune_points {
    double *x, *loss; /* [count] */
    int count, capacity;
} finetune_points;

/* What a process that joins an elastic job must know, and what a checkpoint does not hold. */
typedef struct finetune_progress {
    int64_t first_step;     /* the number of steps before this run */
    int64_t saved_step;     /* that of the last checkpoint; −1: there is none */
    int64_t evaluated_step; /* that of the last evaluation; −1: there was none */
    int64_t most_ranks;     /* the number of ranks at the start */
    int64_t looked_step;    /* when the ranks last looked for processes that join */
    double first_loss;      /* of the first step of this run */
    double best_loss;       /* the lowest one of held-out rows */
    int64_t evaluations_since_best;
} finetune_progress;

#define FINETUNE_RECENT 20 /* steps whose mean time is reported */

typedef struct finetune_run {
    finetune_job job;
    finetune_source source;
    tsr_model_file *file;
    tsr_tokenizer *tokenizer; /* NULL: of a recorded run */
    char *adapter;            /* the files of the first adapter; NULL: a new one */
    finetune_model model;
    data_batch *rows;        /* [accumulate]: this rank's rows of a step */
    int64_t step;            /* the number of steps that have been made, also before this run */
    double loss, norm, rate; /* of the last step; loss NaN: not known yet */
    int64_t tokens;          /* of the last step */
    double started;          /* when the last step began */
    bool unreported;         /* the last step has been made, but not reported */
    bool interrupted, stopped_early;
    bool unsaved; /* a checkpoint could not be saved */
    finetune_progress done;
    const char
        *restart; /* in a job that was started again: what it has reported as "restartable" */
    finetune_points trained, tested; /* on rank 0 */
    FILE *log;                       /* on rank 0, with --log */
    double seconds[FINETUNE_RECENT]; /* times of the last steps */
    int64_t timed;                   /* the number of steps whose time was measured */
    int64_t compiling_step;          /* the step in which kernels are compiled, for no forecast */
    double shown;                    /* when the progress was printed last */
} finetune_run;

/* Returns the seconds since some time in the past, for differences. */
double finetune_seconds(void);

/* loop.c: makes steps until the run ends, is interrupted or fails. */
tsr_status finetune_learn(finetune_run *run);

/* elastic.c */

/* Prepares a process that has joined, or ranks that have changed, for the next step. */
tsr_status finetune_take_over(finetune_run *run);
/* Continues without the lost ranks. */
tsr_status finetune_go_on(finetune_run *run);
/* Adds processes that have been started in place of lost ones. */
tsr_status finetune_look_for_newcomers(finetune_run *run);
/* Tells the launcher that it may start all ranks again if the training is lost, and takes the
 * checkpoint if it has done so. */
void finetune_allow_restart(finetune_run *run);

/* report.c: reports the last step, which took `seconds`; 0: not to be used for forecasts. */
void finetune_report_step(finetune_run *run, double seconds);
/* Reports the last step if that has not been done. */
void finetune_report_later(finetune_run *run);
void finetune_report_evaluation(finetune_run *run, double loss);
tsr_status finetune_log_open(finetune_run *run);
tsr_status finetune_log_close(finetune_run *run);
tsr_status finetune_draw(const finetune_run *run);
void finetune_points_free(finetune_points *points);

/* checkpoint.c */

/* Completes the options by those of the checkpoint --resume. Returns an exit code. */
int finetune_checkpoint_options(void);
tsr_status finetune_checkpoint_save(finetune_run *run);
tsr_status finetune_checkpoint_load(finetune_run *run);

/* sample.c: prints what the model writes after the prompt --sample-every. */
tsr_status finetune_sample(finetune_run *run);

/* output.c: writes the adapter, or with --full the model, to --output. */
/* Fails if a path of the options cannot be written. `first`: also those of rank 0 alone. */
tsr_status finetune_output_check(bool first);
tsr_status finetune_output_write(finetune_run *run);

#endif
