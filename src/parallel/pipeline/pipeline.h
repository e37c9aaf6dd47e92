/* The internal functions of pipelines.
 *
 *     schedule.c  the 1F1B schedule (schedule.h)
 *     divide.c    the division of blocks over stages
 *     create.c    creates a pipeline and its links
 *     run.c       runs the schedule of a stage: the passes, and the tensors to and from neighbours
 */
#ifndef TSR_PARALLEL_PIPELINE_PIPELINE_H
#define TSR_PARALLEL_PIPELINE_PIPELINE_H

#include "parallel/group/group.h"
#include "tessera/pipeline.h"

/* One direction between two stages. Its group has two ranks, of which rank 0 is the earlier stage.
 * Each direction has a group of its own, because all operations of a group must be in the same
 * order on both ranks, and the two stages send and receive in different orders. */
typedef struct tsr__pipeline_link {
    tsr_group *group; /* NULL: there is no such neighbour */
    int neighbour;    /* the stage at the other end */
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

#endif
