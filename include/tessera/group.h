/* Tensors through a communicator: collective operations on device memory, in order with a stream.
 *
 *     tsr_group *group = NULL;
 *     tsr_group_create(comm, stream, NULL, &group);
 *     tsr_group_all_reduce(group, gradient, TSR_OP_SUM);
 *     tsr_group_destroy(&group);
 *
 * A tsr_group is this rank's place in a communicator: its rank, the size, and the stream whose
 * work and memory go in and out. Layers (layer.h) are built on one.
 *
 * Order: an operation takes part in what was recorded on the stream before its call, and what is
 * recorded after it has ended sees its results. Work recorded between its start and its end may
 * overlap with it, and must not touch its tensors; tensors that other streams wrote are waited for.
 * All ranks call the same operations in the same order, as with the communicator, and with the same
 * shapes, except for what is said to differ.
 *
 * Memory: where all ranks can map their tensors (CPU drivers, GPUs that share the host's memory),
 * contiguous tensors are given to the communicator as they are. Where one of them cannot, the data
 * of all goes in pieces through a ring of host memory: while one piece travels, the next is copied
 * from the device and the one before to it.
 *
 * Errors of all operations: TSR_ERR_INVALID (shapes, dtypes, devices, NULL, what other ranks
 * called), those of recording, and those of the communicator, with its deadlines: TSR_ERR_TIMEOUT,
 * TSR_ERR_PEER_LOST. Then the communicator inside has failed, and so does every later call, on all
 * ranks. Arguments that are wrong, also tensors to write to that repeat an element, are found
 * before anything has been sent: the group goes on. Where they are wrong on some ranks only, the
 * others wait for these, at most until their deadline.
 *
 * Threads: one thread at a time uses a stream together with all tsr_group on it, and the
 * communicators they were made from. */
#ifndef TESSERA_GROUP_H
#define TESSERA_GROUP_H

#include "tessera/comm.h"
#include "tessera/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_group tsr_group;
typedef struct tsr_group_request tsr_group_request;

typedef struct tsr_group_params {
    /* Use the ring of host memory even where all tensors can be mapped. One rank that says so is
     * enough. The environment variable TESSERA_FORCE_STAGING=1 says it for a whole process. */
    bool force_staging;
    /* Bytes of one of the ring's four pieces, rounded up to whole pages; 0: 2 MiB. The largest of
     * all ranks' counts. */
    uint64_t piece_bytes;
} tsr_group_params;
#define tsr_group_params(...) (&(tsr_group_params){__VA_ARGS__})

/* All ranks of `comm` call it. `comm` NULL: this process alone, as rank 0 of 1. The group has a
 * duplicate of `comm`, which may be destroyed; `stream` has to outlive the group. `params` may be
 * NULL. Errors: those of tsr_comm_duplicate, TSR_ERR_NO_MEMORY, TSR_ERR_DEVICE_MEMORY;
 * TSR_ERR_UNSUPPORTED in a build without Vulkan. */
TSR_API TSR_NODISCARD tsr_status tsr_group_create(tsr_comm *comm, tsr_stream *stream,
                                                  const tsr_group_params *params, tsr_group **out);
/* Operations in progress are cancelled: their requests fail. Not collective. Layers keep no hold on
 * their group: destroy them first. NULL is fine; sets NULL. */
TSR_API void tsr_group_destroy(tsr_group **group);

/* The group that layers take where they are given none; NULL at first, and again when that group is
 * destroyed. The whole process has one. */
TSR_API void tsr_group_set_default(tsr_group *group);
TSR_API tsr_group *tsr_group_default(void);

/* Of a group without a communicator, and of NULL: 0 of 1. */
TSR_API int tsr_group_rank(const tsr_group *group);
TSR_API int tsr_group_size(const tsr_group *group);
TSR_API tsr_stream *tsr_group_stream(const tsr_group *group);
/* The group's communicator, for values in host memory; NULL for a group made without one, or that
 * has failed. It stays the group's. Not to be used while requests of the group are in progress. */
TSR_API tsr_comm *tsr_group_comm(const tsr_group *group);
/* Whether data goes through the ring of host memory. */
TSR_API bool tsr_group_is_staged(const tsr_group *group);

/* Operations ------------------------------------------------------------------------------------
 *
 * dtypes: those of tensors. Views of any strides; those that are not contiguous, or whose parts for
 * the ranks are not, cost copies on the device. `dim` may be negative and counts from the end. A
 * size of 1 makes them copies on the device. The bits of reductions are those of
 * tsr_comm_all_reduce, however the tensor is cut, copied or staged. */

/* tensor = op over ranks of tensor. */
TSR_API TSR_NODISCARD tsr_status tsr_group_all_reduce(tsr_group *group, tsr_tensor *tensor,
                                                      tsr_op op);

/* tensor = root's tensor. */
TSR_API TSR_NODISCARD tsr_status tsr_group_broadcast(tsr_group *group, tsr_tensor *tensor,
                                                     int root);

/* out = the ranks' `in`, one behind the other along `dim`. Rank r brings sizes[r] of that
 * dimension, which all ranks know; NULL: all the same. In the other dimensions in and out are
 * equal. `in` may be this rank's part of `out`, and else does not overlap it. */
TSR_API TSR_NODISCARD tsr_status tsr_group_all_gather(tsr_group *group, tsr_tensor *out,
                                                      const tsr_tensor *in, int dim,
                                                      const int64_t *sizes);

/* out = this rank's part along `dim` of (op over ranks of in): the opposite of all-gather. `out`
 * may be this rank's part of `in`, and else does not overlap it. */
TSR_API TSR_NODISCARD tsr_status tsr_group_reduce_scatter(tsr_group *group, tsr_tensor *out,
                                                          const tsr_tensor *in, int dim,
                                                          const int64_t *sizes, tsr_op op);

/* Requests --------------------------------------------------------------------------------------
 *
 * Each operation has a second form, which returns before it is done, and holds its tensors' memory
 * until then. Requests may be waited for in any order; operations start in the order of the calls,
 * each when the device has got there. Nothing progresses but inside calls that wait or test, and
 * these drive all requests of all groups on the stream. There is no limit on requests in progress.
 */
TSR_API TSR_NODISCARD tsr_status tsr_group_all_reduce_start(tsr_group *group, tsr_tensor *tensor,
                                                            tsr_op op, tsr_group_request **out);
TSR_API TSR_NODISCARD tsr_status tsr_group_broadcast_start(tsr_group *group, tsr_tensor *tensor,
                                                           int root, tsr_group_request **out);
TSR_API TSR_NODISCARD tsr_status tsr_group_all_gather_start(tsr_group *group, tsr_tensor *out,
                                                            const tsr_tensor *in, int dim,
                                                            const int64_t *sizes,
                                                            tsr_group_request **request);
TSR_API TSR_NODISCARD tsr_status tsr_group_reduce_scatter_start(tsr_group *group, tsr_tensor *out,
                                                                const tsr_tensor *in, int dim,
                                                                const int64_t *sizes, tsr_op op,
                                                                tsr_group_request **request);

/* Whether it is done; if so, returns how it ended, frees the request and sets it to NULL. *request
 * NULL: done. */
TSR_API TSR_NODISCARD tsr_status tsr_group_test(tsr_group_request **request, bool *done);
/* Until it is done; returns how it ended, frees the request and sets it to NULL. *request NULL:
 * TSR_OK. */
TSR_API TSR_NODISCARD tsr_status tsr_group_wait(tsr_group_request **request);
/* Gives up and waits for nobody: frees the request and sets it to NULL. Unless it is done already,
 * the group has failed then, on all ranks. NULL is fine. */
TSR_API void tsr_group_cancel(tsr_group_request **request);

/* Where the time goes ---------------------------------------------------------------------------
 */

typedef struct tsr_group_stats {
    uint64_t operations;   /* that have ended */
    uint64_t size_bytes;   /* of their tensors: of the whole one in gathering and scattering */
    uint64_t device_ns;    /* the calling thread waited for the device to produce data */
    uint64_t transport_ns; /* and for other ranks, while nothing of the device was waited for */
} tsr_group_stats;
/* Since the group was created or its figures reset. */
TSR_API void tsr_group_get_stats(const tsr_group *group, tsr_group_stats *stats);
TSR_API void tsr_group_reset_stats(tsr_group *group);

#ifdef __cplusplus
}
#endif

#endif
