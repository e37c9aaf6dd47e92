/* The internal functions of pipelines.
 *
 *     schedule.c  the 1F1B schedule
 *     divide.c    the division of blocks over stages
 *     link.c      one direction between two neighbours: tensors in the order of micro-batches
 *     create.c    creates a pipeline and its links
 *     run.c       runs the schedule of a stage */
#ifndef TSR_PARALLEL_PIPELINE_PIPELINE_H
#define TSR_PARALLEL_PIPELINE_PIPELINE_H

#include "parallel/group/group.h"
#include "tessera/pipeline.h"

/* One direction between two stages. Its group has two ranks, of which rank 0 is the earlier stage.
 * Each direction has a group of its own, because all operations of a group must be in the same
 * order on both ranks, and the two stages send and receive in different orders. */
typedef struct tsr__pipeline_link {
    tsr_group *group; /* NULL: there is no such neighbour */
    int other;        /* the neighbour's stage */
    int root;         /* the rank in `group` that sends */
} tsr__pipeline_link;

struct tsr_pipeline {
    tsr_stream *stream;
    int stage, stages;
    tsr__pipeline_link from_previous, to_next; /* activations */
    tsr__pipeline_link from_next, to_previous; /* gradients */
    tsr_group *ends;   /* the group of the first and the last stage; NULL on other stages */
    tsr_status status; /* the error with which the pipeline has failed, or TSR_OK */
    char why[TSR__ERROR_TEXT];
    tsr_pipeline_stats stats;
};

/* The tensors that a run of the schedule receives over a link. The next tensor is received before
 * it is needed. */
typedef struct tsr__pipeline_inbox {
    const tsr__pipeline_link *link;
    const tsr_pipeline_run_params *params;
    int posted; /* number of receives that have been started */
    tsr_tensor *tensor;
    tsr_group_request *request; /* the request of the receive that was started last */
} tsr__pipeline_inbox;

/* The tensors that a run of the schedule sends over a link. */
typedef struct tsr__pipeline_outbox {
    const tsr__pipeline_link *link;
    int sent, done;               /* number of sends that have been started, and that have ended */
    tsr_group_request **requests; /* [micro_batches] */
} tsr__pipeline_outbox;

/* link.c: If a link has no group, because there is no neighbour, the functions below do nothing,
 * and tsr__pipeline_take gives NULL. */

/* Starts to receive the next tensor, unless all have been received. */
tsr_status tsr__pipeline_post(tsr_pipeline *pipeline, tsr__pipeline_inbox *inbox) TSR_NODISCARD;
/* Blocks until the tensor of `micro_batch` has arrived, and starts to receive the next one. The
 * caller must destroy the tensor. */
tsr_status tsr__pipeline_take(tsr_pipeline *pipeline, tsr__pipeline_inbox *inbox, int micro_batch,
                              tsr_tensor **out) TSR_NODISCARD;
/* Starts to send a tensor, and frees the requests of sends that have ended. */
tsr_status tsr__pipeline_put(tsr_pipeline *pipeline, tsr__pipeline_outbox *outbox,
                             tsr_tensor *tensor) TSR_NODISCARD;
/* Blocks until all sends have ended. */
tsr_status tsr__pipeline_flush(tsr_pipeline *pipeline, tsr__pipeline_outbox *outbox) TSR_NODISCARD;
/* Frees the tensors and requests that are left after a failure. The links' groups must have failed.
 */
void tsr__pipeline_inbox_drop(tsr__pipeline_inbox *inbox);
void tsr__pipeline_outbox_drop(tsr__pipeline_outbox *outbox);

#endif
