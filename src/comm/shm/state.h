#ifndef TSR_COMM_SHM_STATE_H
#define TSR_COMM_SHM_STATE_H

#include "comm/shm/shm.h"

struct tsr__board {
    tsr__board_page **pages; /* of each rank */
    tsr__board_page *mine;
    int page;        /* its number */
    uint64_t ticket; /* to be shown next, or shown and waited for */
    int waiting_for; /* a rank; those before it have shown the ticket */
    tsr_request *first, *last;
};

#endif
