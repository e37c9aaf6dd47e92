/* The places of a job's ranks in a model with two stages. */
#ifndef TESTS_MODEL_PLACE_H
#define TESTS_MODEL_PLACE_H

#include "parallel/spmd.h"

enum { STAGES = 2 };

/* This rank's place in the job, which has two stages of ranks / 2 ranks each. */
typedef struct place {
    tsr_comm *row, *stages;
    tsr_group *group, *alone;
    int stage;
} place;

static inline bool place_init(place *p)
{
    *p = (place){0};
    if (ranks < 2 || ranks % STAGES != 0) {
        case_skip("%d ranks", ranks);
        return false;
    }
    const int each = ranks / STAGES;
    p->stage = my_rank / each;
    OK(tsr_comm_split(world, p->stage, my_rank, &p->row));
    OK(tsr_comm_split(world, my_rank % each, my_rank, &p->stages));
    OK(tsr_group_create(p->row, queue, NULL, &p->group));
    OK(tsr_group_create(NULL, queue, NULL, &p->alone));
    return true;
}

static inline void place_finish(place *p)
{
    tsr_group_destroy(&p->group);
    tsr_group_destroy(&p->alone);
    tsr_comm_destroy(&p->row);
    tsr_comm_destroy(&p->stages);
}

#endif
