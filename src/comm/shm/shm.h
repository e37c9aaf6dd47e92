/* Collectives of ranks that share memory: each shows the others what it has, and takes what it
 * needs. All operations of a communicator take their turns on its board in the order of their
 * calls.
 *
 * A board is no place for what the ranks do not all know the size of: gather_v, scatter_v and
 * all_to_all_v are carried out by messages. */
#ifndef TSR_COMM_SHM_SHM_H
#define TSR_COMM_SHM_SHM_H

#include "comm/algorithms/tree.h"
#include "comm/shm/memory.h"
#include "comm/shm/slot.h"

#define TSR__BOARD_RANKS 64 /* more take too long to look at, one by one */

typedef struct tsr__job tsr__job;
typedef struct tsr__board tsr__board;
typedef struct tsr__boards tsr__boards; /* all of a job */

/* How a request stands on the board. */
typedef struct tsr__turn {
    tsr_request *next; /* whose turn it is after this */
    uint64_t rounds;   /* 0: this request is not for the board */
    uint64_t round;
    uint64_t piece; /* elements of a round: of everything, or of a block */
    bool whole;     /* a reduction: everybody combines everything */
    bool exact;
    bool shown;
    uint64_t check;
    tsr__blocks blocks;
} tsr__turn;

/* boards.c: whose memory is where -------------------------------------------------------------- */

/* What TESSERA_SHARED_MEMORY says: with off everything goes through messages. */
tsr_status tsr__boards_wanted(bool *out) TSR_NODISCARD;
/* Shares memory. Leaves `*out` NULL where there is none to be had, which is no error. */
tsr_status tsr__boards_open(tsr__job *job, tsr__boards **out) TSR_NODISCARD;
void tsr__boards_close(tsr__job *job);
/* What the others need to look into this rank's. */
tsr__memory_key tsr__boards_key(const tsr__boards *boards);
/* Looks into the memory of a rank of the job on this host. */
void tsr__boards_look(tsr__job *job, int peer, const tsr__memory_key *key);
/* Everybody has looked. */
void tsr__boards_hide(tsr__job *job);

/* A page for one more communicator, or −1. */
int tsr__boards_take(tsr__job *job);
void tsr__boards_give_back(tsr__job *job, int page);
/* The communicator ends here; who lives and has not left may still look at this rank's page, until
 * it says that it leaves, or ends. */
void tsr__boards_retire(const tsr_comm *comm);
/* A rank of the job has left a communicator of that number. */
void tsr__boards_left(tsr__job *job, uint32_t comm, int peer);

/* For up to `size` ranks, without pages. */
tsr_status tsr__board_create(int size, tsr__board **out) TSR_NODISCARD;
/* … with pages[0] … pages[comm->size − 1], for a communicator that is on no board. */
void tsr__board_use(tsr_comm *comm, tsr__board *board, const int32_t *pages);
void tsr__board_destroy(tsr__board **board);

/* board.c: taking turns ------------------------------------------------------------------------ */

/* In the order of calls. */
void tsr__board_add(tsr_comm *comm, tsr_request *request);
/* As far as it goes without waiting; true when something moved. */
bool tsr__board_advance(tsr_comm *comm);
bool tsr__board_is_busy(const tsr__board *board);
/* Whose turn it is. */
const tsr__call *tsr__board_call(const tsr__board *board);
/* Nobody's turn any more, and nothing is shown. */
void tsr__board_stop(tsr__board *board);
/* Whether it is this rank that the board waits for. */
bool tsr__board_awaits(const tsr__board *board, int rank);
/* Whether others are to wake this rank. */
void tsr__board_set_sleeping(tsr__board *board, bool sleeping);

/* rounds.c: what is shown and taken ------------------------------------------------------------ */

/* The rounds of a request whose call, buffers, blocks and `exact` are set; 0 when it is not for the
 * board. */
void tsr__turn_prepare(tsr_comm *comm, tsr_request *request);
/* One round: what this rank shows in its own half … */
void tsr__turn_show(tsr_comm *comm, tsr_request *request, tsr__board_page *const *pages,
                    unsigned half);
/* … and what it takes from all. */
void tsr__turn_take(tsr_comm *comm, tsr_request *request, tsr__board_page *const *pages,
                    unsigned half);

#endif
