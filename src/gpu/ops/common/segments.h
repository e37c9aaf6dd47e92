/* Divides long rows that are too few to keep a GPU busy into segments, each with a workgroup of its
 * own. The segments of a row are computed at the same time, in two or three dispatches, one for
 * each phase. The results have the same bits as if one workgroup computed the row
 * (shaders/params/rows.h). */
#ifndef TSR_GPU_OPS_COMMON_SEGMENTS_H
#define TSR_GPU_OPS_COMMON_SEGMENTS_H

#include "gpu/ops/common/rows.h"

/* True if the segments of `rows` rows of `count` elements should be computed by workgroups of their
 * own. The choice depends on how many processors the GPU has. */
bool tsr__segments_suit(const tsr_device *device, uint64_t rows, int64_t count);

/* True if tsr__segments_suit is true and the kernel for divided rows has not failed its self-test.
 * `whole` is the dispatch that would compute the complete rows instead. */
bool tsr__segments_chosen(tsr_device *device, const tsr__dispatch *whole, uint64_t rows,
                          int64_t count);

/* Requests the scratch memory for partial results of `rows` rows, before the operation's first
 * dispatch. */
tsr_status tsr__segments_scratch(tsr_stream *stream, uint64_t rows, int64_t count,
                                 tsr__buffer **out) TSR_NODISCARD;

/* Adds the dispatches of the phases from `first` to the last one. `dispatch` describes the dispatch
 * of the complete rows, apart from its workgroups and from PHASE, which must be the kernel's next
 * specialization constant. Its push constants contain the address of `scratch`, which may be NULL
 * if there is only the last phase. */
tsr_status tsr__segments_add(tsr__dispatches *list, tsr__dispatch *dispatch, uint64_t rows,
                             int64_t count, uint32_t first, tsr__buffer *scratch) TSR_NODISCARD;

#endif
