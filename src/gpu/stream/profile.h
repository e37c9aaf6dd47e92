/* What a stream's commands are: how many of each kernel, with which barriers, bytes, operations and
 * times. tessera bench model --kernels prints this. */
#ifndef TSR_GPU_STREAM_PROFILE_H
#define TSR_GPU_STREAM_PROFILE_H

#include "tessera/stream.h"

#define TSR__PROFILE_KERNELS 128

/* All commands that run the same shader; or all copies, fills or updates by the driver. */
typedef struct tsr__profile_kernel {
    char name[64];     /* of the shader; "copy", "fill", "update": vkCmdCopyBuffer, …; "kernel":
                          a kernel of the caller's own */
    bool matrix_units; /* the shader uses cooperative matrices */
    uint64_t commands; /* dispatches or other commands */
    uint64_t barriers; /* the number of barriers recorded immediately before these commands */
    double read_bytes; /* of the ranges that the commands declare, or of the part that they */
    double written_bytes; /* actually read or write, where the operation states it */
    double operations;    /* of floats, in products and attention; a multiply-add is two */
    uint64_t timed;       /* the number of commands whose time is in `ns` */
    double ns;            /* from their start, after the barriers before them, to their end */
} tsr__profile_kernel;

typedef struct tsr__profile {
    int kernel_count;
    tsr__profile_kernel kernels[TSR__PROFILE_KERNELS]; /* in the order of their first command */
    uint64_t batches; /* the number of batches submitted to a queue */
    bool has_times;   /* the device has timestamps */
    /* if has_times: the time from the first command's start to the last one's end, and the sum of
     * the times in which no command ran: barriers, submissions and waits for the host */
    double elapsed_ns, gaps_ns;
} tsr__profile;

/* Waits for the stream's work, and then counts its commands, including those on the transfer queue,
 * until tsr__stream_profile_end. If the device has timestamps, the first 16384 commands are also
 * timed; those on the transfer queue are not. Errors: TSR_ERR_INVALID (already begun), and those of
 * tsr_stream_wait. */
tsr_status tsr__stream_profile_begin(tsr_stream *stream) TSR_NODISCARD;

/* Waits for the stream's work and writes what was counted. Counting ends even on failure. Errors:
 * TSR_ERR_INVALID (not begun), and those of tsr_stream_wait. */
tsr_status tsr__stream_profile_end(tsr_stream *stream, tsr__profile *out) TSR_NODISCARD;

#endif
