/* What a rank has called: the few numbers that all ranks must agree on, in messages, and in
 * words. */
#ifndef TSR_COMM_CALL_H
#define TSR_COMM_CALL_H

#include <stdbool.h>

#include "tessera/comm.h"

typedef enum tsr__call_kind {
    TSR__CALL_ALL_REDUCE,
    TSR__CALL_REDUCE,
    TSR__CALL_REDUCE_SCATTER,
    TSR__CALL_REDUCE_SCATTER_V,
    TSR__CALL_ALL_GATHER,
    TSR__CALL_ALL_GATHER_V,
    TSR__CALL_BROADCAST,
    TSR__CALL_GATHER,
    TSR__CALL_GATHER_V,
    TSR__CALL_SCATTER,
    TSR__CALL_SCATTER_V,
    TSR__CALL_ALL_TO_ALL,
    TSR__CALL_ALL_TO_ALL_V,
    TSR__CALL_BARRIER,
    TSR__CALL_SPLIT,
    TSR__CALL_DUPLICATE,
    TSR__CALL_CREATE,
    TSR__CALL_SEND, /* these two are between two ranks only, and have no place in the sequence */
    TSR__CALL_RECV,
    TSR__CALL_KINDS
} tsr__call_kind;

/* Travels between processes of one build as it is. Fields that do not matter to a kind are 0; so
 * are counts that may differ between ranks. */
typedef struct tsr__call {
    uint64_t sequence; /* how many collective operations the communicator had before */
    uint64_t count;
    uint64_t counts; /* a hash of the blocks' sizes, where all ranks know all */
    int32_t peer;    /* root, or the other rank of a send */
    uint16_t tag;
    uint8_t kind, dtype, op;
    uint8_t unused[3];
    uint32_t history; /* a hash of all collective operations before */
} tsr__call;

#define TSR__CALL_TEXT 128
/* "all_reduce #5 (sum of 100 f32)". */
const char *tsr__call_format(const tsr__call *call, char text[TSR__CALL_TEXT]);
const char *tsr__call_name(int kind);

/* Whatever was before. */
bool tsr__call_same(const tsr__call *a, const tsr__call *b);

/* The history of what comes after. */
uint32_t tsr__call_history(const tsr__call *call);

/* What fits into a tag: kind, dtype and op as they are, and ten bits of the rest and of what was
 * before. */
#define TSR__SIGNATURE_BITS 22
uint32_t tsr__call_signature(const tsr__call *call);
/* The call that a signature tells of, without what it does not hold: "all_reduce (sum of f32)". */
const char *tsr__signature_format(uint32_t signature, char text[TSR__CALL_TEXT]);

#endif
