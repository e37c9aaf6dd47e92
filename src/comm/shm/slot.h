/* What one rank shows the others of a communicator, in shared memory. Only its owner writes to it,
 * but for `sleeping`.
 *
 * Time goes by in tickets, the same on all ranks. For ticket t a rank puts what it has to show into
 * half t mod 2, and then t into that half's line. Whoever has seen t on all pages may read that
 * half of them; and may write to the other half of its own page, since everybody has been done with
 * ticket t − 1 before showing t. So one store and one load for each rank is all it takes. */
#ifndef TSR_COMM_SHM_SLOT_H
#define TSR_COMM_SHM_SLOT_H

#include <stdalign.h>
#include <stdatomic.h>

#include "comm/api/call.h"

#define TSR__BOARD_INLINE 48
#define TSR__BOARD_INPUT (UINT32_C(256) << 10)
#define TSR__BOARD_RESULT (UINT32_C(132) << 10) /* half of that, and some for rounding up */

/* One cache line: what is small comes with the ticket. */
typedef struct tsr__board_line {
    _Atomic uint64_t ticket;
    uint64_t check; /* a hash of the call */
    uint8_t bytes[TSR__BOARD_INLINE];
} tsr__board_line;

typedef struct tsr__board_half {
    uint8_t input[TSR__BOARD_INPUT];
    uint8_t result[TSR__BOARD_RESULT];
} tsr__board_half;

/* Processors fetch lines in pairs: what different ranks write is that far apart. */
typedef struct tsr__board_page {
    struct {
        alignas(128) tsr__board_line line;
        alignas(128) tsr__call call; /* looked at when `check` differs */
        tsr__call before;
    } heads[2];
    alignas(128) _Atomic uint32_t sleeping; /* the owner wants to be woken when there is news */
    alignas(4096) tsr__board_half halves[2];
} tsr__board_page;

#endif
