#include "comm/shm/shm.h"

#include <stdio.h>

#include "base/error.h"
#include "comm/job.h"
#include "comm/shm/state.h"

bool tsr__board_is_busy(const tsr__board *board)
{
    return board && board->first;
}

const tsr__call *tsr__board_call(const tsr__board *board)
{
    return &board->first->call;
}

void tsr__board_stop(tsr__board *board)
{
    if (!board)
        return;
    board->first = board->last = NULL;
    /* Who comes late shall not succeed with what the others have given up. */
    atomic_store(&board->mine->heads[0].line.ticket, UINT64_MAX);
    atomic_store(&board->mine->heads[1].line.ticket, UINT64_MAX);
}

void tsr__board_set_sleeping(tsr__board *board, bool sleeping)
{
    atomic_store(&board->mine->sleeping, sleeping);
}

/* Of everything that has to agree. */
static uint64_t check_of(const tsr__call *call)
{
    return call->sequence << 32 ^ tsr__call_history(call);
}

void tsr__board_add(tsr_comm *comm, tsr_request *request)
{
    tsr__board *board = comm->board;
    request->turn.next = NULL;
    request->turn.round = 0;
    request->turn.shown = false;
    request->turn.check = check_of(&request->call);
    if (board->first)
        board->last->turn.next = request;
    else
        board->first = request;
    board->last = request;
}

/* Turns ----------------------------------------------------------------------------------------
 */

static void show(tsr_comm *comm, tsr_request *request)
{
    tsr__board *board = comm->board;
    const unsigned half = board->ticket & 1;
    const tsr__call *before = tsr__comm_past(comm, request->call.sequence - 1);
    if (!before)
        before = &request->call;
    tsr__turn_show(comm, request, board->pages, half);
    board->mine->heads[half].call = request->call;
    board->mine->heads[half].before = *before;
    board->mine->heads[half].line.check = request->turn.check;
    atomic_store_explicit(&board->mine->heads[half].line.ticket, board->ticket,
                          memory_order_release);
    request->turn.shown = true;
    board->waiting_for = 0;
    /* The ticket is seen before anybody who then falls asleep looks for it; see job_doze. */
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < comm->size; i++) {
        _Atomic uint32_t *sleeping = &board->pages[i]->sleeping;
        if (i != comm->rank && atomic_load_explicit(sleeping, memory_order_relaxed) &&
            atomic_exchange(sleeping, 0))
            tsr__control_wake(comm, i);
    }
}

static bool has_shown(const tsr__board *board, int rank)
{
    const tsr__board_line *line = &board->pages[rank]->heads[board->ticket & 1].line;
    return atomic_load_explicit(&line->ticket, memory_order_acquire) == board->ticket;
}

static void disagree(tsr_comm *comm, const tsr_request *request, int rank)
{
    const tsr__board *board = comm->board;
    const tsr__call theirs = board->pages[rank]->heads[board->ticket & 1].call;
    const tsr__call before = board->pages[rank]->heads[board->ticket & 1].before;
    tsr__comm_compare(comm, rank, &theirs, &before);
    if (comm->status == TSR_OK) /* the other is ahead */
        tsr__comm_disagree(comm, &request->call, rank, &theirs);
}

static bool all_have_shown(tsr_comm *comm, const tsr_request *request)
{
    tsr__board *board = comm->board;
    const unsigned half = board->ticket & 1;
    for (; board->waiting_for < comm->size; board->waiting_for++) {
        const int rank = board->waiting_for;
        if (rank == comm->rank)
            continue;
        if (!has_shown(board, rank))
            return false;
        if (board->pages[rank]->heads[half].line.check != request->turn.check) {
            disagree(comm, request, rank);
            return false;
        }
    }
    return true;
}

bool tsr__board_advance(tsr_comm *comm)
{
    tsr__board *board = comm->board;
    bool moved = false;
    for (tsr_request *request; (request = board->first) != NULL;) {
        if (!request->turn.shown) {
            show(comm, request);
            moved = true;
        }
        if (!all_have_shown(comm, request))
            return moved;
        tsr__turn_take(comm, request, board->pages, board->ticket & 1);
        request->turn.shown = false;
        board->ticket++;
        moved = true;
        if (++request->turn.round == request->turn.rounds) {
            board->first = request->turn.next;
            tsr__request_finish(request, TSR_OK);
        }
    }
    return moved;
}

bool tsr__board_awaits(const tsr__board *board, int rank)
{
    return board->first && board->first->turn.shown && !has_shown(board, rank);
}
