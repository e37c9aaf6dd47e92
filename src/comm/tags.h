/* The tags of messages: the 64 bits by which UCX matches a message with a receive.
 *
 *     collective  0:2  communicator:20  source:12  sequence:8  signature:22
 *     send, recv  1:2  communicator:20  source:12  tag:16  dtype:4  0:10
 *     control     2:2  0:20  source:12  0:30
 *
 * Signature and dtype do not take part in matching; they are compared on arrival, so that different
 * calls give an error that names them instead of a message that is never received.
 *
 * The source is a rank of the job. That distinguishes communicators of the same number: if making a
 * communicator succeeds on some ranks only, the others may later make one of that number, but none
 * that contains the former.
 *
 * Messages of one tag arrive in order. The sequence number may wrap around, because a communicator
 * has far fewer operations in progress than 256. */
#ifndef TSR_COMM_TAGS_H
#define TSR_COMM_TAGS_H

#include "comm/call.h"

#define TSR__COMM_IDS (UINT32_C(1) << 20)

#define TSR__TAG_CONTROL (UINT64_C(2) << 62)
#define TSR__TAG_CONTROL_MASK (UINT64_C(3) << 62)
#define TSR__TAG_COLLECTIVE_MASK (~((UINT64_C(1) << TSR__SIGNATURE_BITS) - 1))
#define TSR__TAG_DIRECT_MASK (~((UINT64_C(1) << 14) - 1))
#define TSR__TAG_COMM_MASK (~((UINT64_C(1) << 42) - 1)) /* all messages of a communicator */

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
