/* The tags of messages: the 64 bits with which UCX matches a message with a receive. A number after
 * a field's name is its size in bits.
 *
 *     collective  0:2  communicator:20  source:12  sequence:8  signature:22
 *     send, recv  1:2  communicator:20  source:12  tag:16  dtype:4  0:10
 *     control     2:2  0:20  source:12  0:30
 *
 * Matching ignores the signature and the dtype, which are compared when a message arrives. So if
 * ranks make different calls, the message is received, and an error names both calls.
 *
 * The source is the sender's rank in the job. It distinguishes communicators that have the same
 * number, which exist if creating a communicator has succeeded on some ranks only. The other ranks
 * may later create another communicator with that number, but this one cannot contain any rank on
 * which the first creation succeeded.
 *
 * Messages with the same tag arrive in order. The sequence number may wrap around at 256, because a
 * communicator has far fewer operations in progress. */
#ifndef TSR_COMM_MESSAGE_TAGS_H
#define TSR_COMM_MESSAGE_TAGS_H

#include "comm/collective_call.h"

#define TSR__COMM_IDS (UINT32_C(1) << 20)

#define TSR__TAG_CONTROL (UINT64_C(2) << 62)
#define TSR__TAG_CONTROL_MASK (UINT64_C(3) << 62)
#define TSR__TAG_COLLECTIVE_MASK (~((UINT64_C(1) << TSR__SIGNATURE_BITS) - 1))
#define TSR__TAG_DIRECT_MASK (~((UINT64_C(1) << 14) - 1))
/* the bits that all messages of a communicator share */
#define TSR__TAG_COMM_MASK (~((UINT64_C(1) << 42) - 1))

static inline uint64_t tsr__tag_source(int source)
{
    return (uint64_t)(source & 0xfff) << 30;
}

static inline uint64_t tsr__tag_collective(uint32_t comm, int source, uint64_t sequence,
                                           uint32_t signature)
{
    return (uint64_t)comm << 42 | tsr__tag_source(source) | (sequence & 0xff) << 22 | signature;
}

static inline uint64_t tsr__tag_direct(uint32_t comm, int source, int tag, tsr_dtype dtype)
{
    return UINT64_C(1) << 62 | (uint64_t)comm << 42 | tsr__tag_source(source) |
           (uint64_t)tag << 14 | (uint64_t)dtype << 10;
}

static inline tsr_dtype tsr__tag_dtype(uint64_t tag)
{
    return (tsr_dtype)(tag >> 10 & 15);
}

#endif
