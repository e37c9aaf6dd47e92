/* A process's place in the job: its device, and its two groups in a grid of ranks. */
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
    tsr_group *data_group;   /* a column: the same part of the parameters, other images */
    tsr_group *tensor_group; /* a row: the same images, other parts of the parameters */
} digits_job;

/* Meets the other ranks. job_finish() afterwards in any case. A grid that does not fit the ranks is
 * TSR_ERR_INVALID, with the sentence in `error`; else it stays empty. */
tsr_status job_init(digits_job *self, const digits_options *options, char error[256]);
void job_finish(digits_job *self);

/* Starts `options->ranks` processes of this program, in the place of this one, when that many are
 * asked for and no launcher has started this one. Returns when there is nothing to do; false when
 * it failed, with a sentence on stderr. */
bool job_launch(const digits_options *options, char **argv);

#endif
