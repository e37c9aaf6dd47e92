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
    int batch;           /* rows of a batch: a multiple of the number of data-parallel ranks */
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
    int batch;
} example_job;

/* Connects to the other ranks. Call job_finish() afterwards, also on failure. If the grid does not
 * fit the ranks, returns TSR_ERR_INVALID with a message in `error`; otherwise `error` is empty. */
tsr_status job_init(example_job *self, const example_job_params *params, char error[256]);
void job_finish(example_job *self);

/* The number of rows of a batch that this rank has, and the first of them. */
int job_rows(const example_job *self);
int job_first_row(const example_job *self);

/* Starts `params->ranks` processes of this program in place of this one, if there is more than one
 * and no launcher has started this process. In that case it does not return. Otherwise it returns
 * true. On failure it returns false, with a message on standard error. */
bool job_launch(const example_job_params *params, char **argv);

#endif
