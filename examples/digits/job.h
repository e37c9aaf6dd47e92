/* A process's place in the job: its device, and its two groups in the grid of ranks. */
#ifndef DIGITS_JOB_H
#define DIGITS_JOB_H

#include "common/common.h"
#include "options.h"

typedef struct digits_job {
    tsr_comm *world;
    int rank, ranks;
    int data, tensor; /* the grid's rows and columns; the ranks of a row are consecutive */
    int data_rank, tensor_rank;
    tsr_comm *data_comm;
    tsr_device *device;
    tsr_stream *stream;
    tsr_group *data_group;   /* a column of the grid: same part of the parameters, other images */
    tsr_group *tensor_group; /* a row of the grid: same images, other parts of the parameters */
} digits_job;

/* Connects to the other ranks. Call job_finish() afterwards, also on failure. If the grid does not
 * fit the ranks, returns TSR_ERR_INVALID with a message in `error`; otherwise `error` is empty. */
tsr_status job_init(digits_job *self, const digits_options *options, char error[256]);
void job_finish(digits_job *self);

/* Replaces this process by `options->ranks` processes of this program, if there is more than one
 * and no launcher has started this process. Otherwise it returns true. On failure it returns false,
 * with a message on standard error. */
bool job_launch(const digits_options *options, char **argv);

#endif
