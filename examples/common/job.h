/* The place of a process in its job: its device, its two groups in the grid of ranks, and its
 * stage. */
#ifndef EXAMPLES_JOB_H
#define EXAMPLES_JOB_H

#include "common/common.h"

typedef struct example_job_params {
    const char *program; /* the program's name, with which error messages start */
    int ranks;           /* 0: as many as were launched */
    int data, tensor;    /* the grid's sizes; both 0: all ranks are tensor-parallel */
    int context;         /* ranks that divide the tokens of each row; 0: 1 */
    int stages;          /* the stages of a pipeline, each of which is a grid of ranks; 0: 1 */
    tsr_dtype wire;      /* dtype in which tensor-parallel activations are sent; 0: unchanged */
    int batch; /* rows of a batch; a multiple of the number of data-parallel ranks, unless the job
                  is elastic. 0: job_use_batch() says */
    /* All ranks are data-parallel. The job can continue without lost ranks, and with new ones
     * (job_shrink, job_grow). */
    bool elastic;
    const char *device;
    double timeout_seconds;
} example_job_params;

typedef struct example_job {
    tsr_comm *world;
    int rank, ranks;
    int data, tensor; /* the grid's rows and columns; the ranks of a row are consecutive */
    int context;      /* how many rows of tensor-parallel ranks a row of the grid consists of */
    int stages;       /* number of grids; the ranks of a stage are consecutive */
    int data_rank, context_rank, tensor_rank, stage;
    tsr_comm *data_comm;  /* the ranks of data_group */
    tsr_comm *stage_comm; /* the ranks that have this rank's place in the grids of the other stages,
                             and this rank */
    tsr_device *device;
    tsr_stream *stream;
    /* a column of the grid: the same part of the parameters, other data or other tokens of the same
     * sequences */
    tsr_group *data_group;
    tsr_group *context_group; /* those of data_group with other tokens of the same sequences; NULL
                                 if there is only this rank */
    tsr_group *tensor_group;  /* a row of the grid: same data, other parts of the parameters */
    bool is_elastic;
    bool joined; /* this process has joined a job that was running */
    int batch;
    tsr_group *old_data_group; /* the group before the last change of ranks, until job_settle()
                                  destroys it */
} example_job;

/* Connects to the other ranks. Call job_finish() afterwards, also on failure. If the grid does not
 * fit the ranks, returns TSR_ERR_INVALID with a message in `error`; otherwise `error` is empty. */
tsr_status job_init(example_job *self, const example_job_params *params, char error[256]);
void job_finish(example_job *self);

/* Sets the batch of a job that was created without. If it does not fit the ranks, returns
 * TSR_ERR_INVALID with a message in `error`. */
tsr_status job_use_batch(example_job *self, int batch, char error[256]);

/* The number of rows of a batch that this rank has, and the first of them. */
int job_rows(const example_job *self);
int job_first_row(const example_job *self);

/* Continues without the lost ranks after TSR_ERR_PEER_LOST or TSR_ERR_TIMEOUT. Sets *again if a
 * further rank was lost meanwhile; the call must then be repeated. */
tsr_status job_shrink(example_job *self, bool *again);
/* Adds up to `count` processes that wait to join. Sets *grown to whether there were any. */
tsr_status job_grow(example_job *self, int count, bool *grown);
/* Destroys the data-parallel group of before the last change of ranks. Call it when nothing uses
 * that group any more. */
void job_settle(example_job *self);
/* Returns whether the status means that a rank is lost. */
bool job_has_lost(tsr_status status);

/* Reports to `tessera launch`, if it has started this process (docs/launching.md). `format` and its
 * arguments make a word and its value. */
#ifdef __GNUC__
__attribute__((format(printf, 1, 2)))
#endif
void job_report(const char *format, ...);
/* Returns whether a launcher has started this process in place of one that has failed. */
bool job_is_joining(void);

/* Starts `params->ranks` processes of this program in place of this one, if there is more than one
 * and no launcher has started this process. In that case it does not return. Otherwise it returns
 * true. On failure it returns false, with a message on standard error. */
bool job_launch(const example_job_params *params, char **argv);

#endif
