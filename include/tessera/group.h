/* Groups: collective operations on tensors. They send data through a communicator, and take place
 * in order with the work of a stream.
 *
 *     tsr_group *group = NULL;
 *     tsr_group_create(comm, stream, NULL, &group);
 *     tsr_group_all_reduce(group, gradient, TSR_OP_SUM, NULL, NULL);
 *     tsr_group_destroy(&group);
 *
 * A tsr_group combines a communicator, which determines this process's rank and the number of
 * ranks, with the stream that produces and uses the tensors. Layers (layer.h) are built on a group.
 *
 * Order: an operation sees everything that was recorded on the stream before its call. Work that is
 * recorded after the operation has ended sees its results. Work that is recorded between its start
 * and its end may overlap with it, and must not touch its tensors. If another stream has written a
 * tensor, the operation waits for that. All ranks must call the same operations in the same order,
 * as for a communicator, and with the same shapes except where a comment says otherwise.
 *
 * Memory: if all ranks can map their tensors (CPU drivers, GPUs that share the host's memory), the
 * communicator reads and writes contiguous tensors in place. If one rank cannot, the data of all
 * ranks go in pieces through a ring of host memory: while one piece is sent, the next one is copied
 * from the device and the previous one to the device.
 *
 * Errors of all operations: TSR_ERR_INVALID (shapes, dtypes, devices, NULL, a different call on
 * another rank), those of recording, and those of the communicator, including TSR_ERR_TIMEOUT after
 * its deadline and TSR_ERR_PEER_LOST. If an operation fails after its data have begun to be sent,
 * the group has failed: every later call fails, on all ranks. Wrong arguments, including an output
 * that repeats an element, are detected before anything is sent, and the group remains usable. If
 * the arguments are wrong on some ranks only, the other ranks wait for them until their deadline.
 *
 * Threads: one thread at a time may use a stream, all groups on it, and the communicators that the
 * groups were created from. */
#ifndef TESSERA_GROUP_H
#define TESSERA_GROUP_H

#include "tessera/comm.h"
#include "tessera/stream.h"
#include "tessera/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_group tsr_group;

typedef struct tsr_group_params {
    size_t struct_size;
    /* Use the ring of host memory even if all tensors can be mapped. It is enough that one rank
     * sets this. The environment variable TESSERA_FORCE_STAGING=1 sets it for a process. */
    bool force_staging;
    /* The size in bytes of each of the four buffers that the ring of host memory consists of, at
     * least 64 KiB, rounded up to pages; 0: 2 MiB. If the ranks give different values, the largest
     * counts. */
    uint64_t piece_bytes;
    /* The dtype in which layers (layer.h) send activations and their gradients over this group,
     * as "Slow connections" below describes: sums, and the reduce-scatters and all-gathers of
     * sequence parallelism and of divided features. Results are then less exact. Everything else is
     * sent as it is: parameters and their gradients, also those of FSDP models (fsdp.h), logits of
     * language models, and losses. All ranks must give the same. 0: activations are sent as they
     * are. */
    tsr_dtype wire;
    /* Layers multiply with tsr_matmul_params.allow_int8 in their forward
     * passes. Ranks may differ. */
    bool allow_int8;
    /* How layers multiply in their forward passes (types.h). TSR_PRECISION_DEFAULT:
     * TSR_PRECISION_HIGH with weights of 16 bits or in blocks, and TSR_PRECISION_HIGHEST with those
     * of f32. Gradients are always computed with TSR_PRECISION_HIGHEST. Ranks may differ. */
    tsr_precision precision;
} tsr_group_params;
#define tsr_group_params(...)                                                                      \
    (&(tsr_group_params){.struct_size = sizeof(tsr_group_params), __VA_ARGS__})

/* Creates a group from the ranks of `comm`; NULL means this process alone, as rank 0 of 1.
 * Collective. Blocks until all ranks have called it. The group uses a duplicate of `comm`, so
 * `comm` may be destroyed; `stream` must outlive the group. `params` may be NULL. Errors: those of
 * tsr_comm_duplicate, TSR_ERR_NO_MEMORY, TSR_ERR_DEVICE_MEMORY; TSR_ERR_UNSUPPORTED in a build
 * without Vulkan. */
TSR_API TSR_NODISCARD tsr_status tsr_group_create(tsr_comm *comm, tsr_stream *stream,
                                                  const tsr_group_params *params, tsr_group **out);
/* Destroys a group. Not collective. Operations in progress are cancelled, and their requests fail.
 * Destroy the group's layers first. Blocks like tsr_comm_destroy and, if operations are in
 * progress, like tsr_request_cancel. Sets *group to NULL. NULL is allowed. */
TSR_API void tsr_group_destroy(tsr_group **group);

/* The group that is used where params leave `group` NULL. There is one for the process; it is NULL
 * at first, and again after that group is destroyed. */
TSR_API void tsr_group_set_default(tsr_group *group);
TSR_API tsr_group *tsr_group_default(void);

/* This process' rank and the number of ranks. Without a communicator, and for NULL: 0 and 1. */
TSR_API int tsr_group_rank(const tsr_group *group);
TSR_API int tsr_group_size(const tsr_group *group);
TSR_API tsr_stream *tsr_group_stream(const tsr_group *group);
/* The group's communicator, for values in host memory. It belongs to the group, and must not be
 * used while requests of the group are in progress. NULL if the group was created without one, or
 * has failed. */
TSR_API tsr_comm *tsr_group_comm(const tsr_group *group);

/* Operations ------------------------------------------------------------------------------------
 *
 * Tensors may have any dtype and be views with any strides. A view that is not contiguous, or whose
 * parts for the ranks are not contiguous, costs copies on the device. A negative `dim` counts from
 * the end. Reductions have the bits of tsr_comm_all_reduce, no matter how a tensor is cut, copied
 * or staged.
 *
 * If `request` is NULL, a call blocks until the operation is done on this rank: the device has
 * produced the tensors, and the data of the other ranks have arrived. Copies of results on the
 * device may still be in progress; work that is recorded later sees them. With one rank, operations
 * only record copies.
 *
 * Otherwise the call starts the operation, sets *request for tsr_request_wait, tsr_request_test or
 * tsr_request_cancel (comm.h), and returns. The operation holds its tensors' memory until it is
 * done. Requests may be waited for in any order. Operations start in the order of the calls, each
 * when the device has produced its tensors. They progress only inside calls that block or test for
 * a group; these advance the operations of all groups on the stream. The number of requests is not
 * limited. Cancelling an operation that is not done fails the group on all ranks. */

typedef struct tsr_collective_params {
    size_t struct_size;
    /* The dtype in which data are sent, as described below; 0: that of the tensors. */
    tsr_dtype wire;
    /* All-gather and reduce-scatter: [ranks], the size of each rank's part along `dim`, the same on
     * all ranks. NULL: all parts have the same size. */
    const int64_t *sizes;
} tsr_collective_params;
#define tsr_collective_params(...)                                                                 \
    (&(tsr_collective_params){.struct_size = sizeof(tsr_collective_params), __VA_ARGS__})

/* All-reduce: tensor = op over the tensors of all ranks. */
TSR_API TSR_NODISCARD tsr_status tsr_group_all_reduce(tsr_group *group, tsr_tensor *tensor,
                                                      tsr_op op,
                                                      const tsr_collective_params *params,
                                                      tsr_request **request);

/* Broadcast: tensor = the tensor of rank `root`. */
TSR_API TSR_NODISCARD tsr_status tsr_group_broadcast(tsr_group *group, tsr_tensor *tensor, int root,
                                                     tsr_request **request);

/* All-gather: out = the `in` of all ranks, concatenated along `dim` in the order of ranks. Rank r
 * contributes sizes[r] of that dimension. The other dimensions of in and out must be equal. `in`
 * may be exactly this rank's part of `out`, and must not overlap it otherwise. */
TSR_API TSR_NODISCARD tsr_status tsr_group_all_gather(tsr_group *group, tsr_tensor *out,
                                                      const tsr_tensor *in, int dim,
                                                      const tsr_collective_params *params,
                                                      tsr_request **request);

/* Reduce-scatter: out = this rank's part along `dim` of (op over the `in` of all ranks). Rank r
 * gets sizes[r] of that dimension. `out` may be exactly this rank's part of `in`, and must not
 * overlap it otherwise. */
TSR_API TSR_NODISCARD tsr_status tsr_group_reduce_scatter(tsr_group *group, tsr_tensor *out,
                                                          const tsr_tensor *in, int dim, tsr_op op,
                                                          const tsr_collective_params *params,
                                                          tsr_request **request);

/* Slow connections ------------------------------------------------------------------------------
 *
 * With tsr_collective_params.wire, an operation rounds what is sent to a narrow format. Tensors are
 * f32, f16 or bf16, and the op of a reduction is TSR_OP_SUM. A wire that is not narrower than the
 * dtype of the tensors changes nothing; neither does any wire in a group of one rank.
 *
 *     wire       bytes per element   error of an element x, at most
 *     TSR_F16    2                   |x| · 2^-11, from 2^-14 to 65504
 *     TSR_BF16   2                   |x| · 2^-8
 *     TSR_Q8_0   1.0625              max |x| · (1/254 + 1/2048)
 *
 * The last row holds if max |x| is at least 2^-28 times the largest element of the tensor.
 *
 * max |x| is the largest element of x's block: 32 elements that follow each other in row-major
 * order in what one rank sends to another. In f16, larger elements become infinite, smaller ones
 * lose bits, and elements up to 2^-25 become 0; gradients are often that small. In TSR_Q8_0, an
 * element that is NaN or infinite makes everything NaN that is sent with it, on all ranks.
 *
 * The error of a sum is at most the sum of these errors over the ranks, plus the rounding of the
 * f32 additions. Contributions are added in f32, in the order of ranks. The device packs and
 * unpacks, and only the narrow format is sent or staged.
 *
 * All-reduce: each rank's tensor is rounded once, and no intermediate sum is rounded to `wire`. All
 * ranks get the same bits. Each rank sends its contribution to every other rank, which is less than
 * an all-reduce of f32 sends with up to 3 ranks (16 bits) or 7 ranks (blocks).
 *
 * All-gather: each rank's own part is rounded too, so that all ranks get the same bits.
 *
 * Reduce-scatter: each rank sends every other rank its contribution to that rank's part, which is
 * less than without a wire for any number of ranks. In f16 and bf16, the result has the bits of
 * this rank's part of the all-reduce. */

/* Time --------------------------------------------------------------------------------------- */

typedef struct tsr_group_stats {
    size_t struct_size;
    uint64_t operations; /* number of operations that have ended */
    uint64_t size_bytes; /* bytes of their tensors; for all-gather and reduce-scatter, of the full
                            tensor */
    /* The time that the calling thread waited for the device to produce data. */
    uint64_t device_ns;
    /* The time that the calling thread waited for other ranks, but not for the device. */
    uint64_t transport_ns;
    bool staged; /* whether data go through the ring of host memory; the same on all ranks */
} tsr_group_stats;
/* Writes the sums since the group was created or last reset. Errors: TSR_ERR_INVALID for NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_group_get_stats(const tsr_group *group, tsr_group_stats *out);
TSR_API void tsr_group_reset_stats(tsr_group *group);

#ifdef __cplusplus
}
#endif

#endif
