#include "gpu/ops/common/segments.h"

#include <string.h>

#include "gpu/memory/tensor.h"

enum {
    /* One workgroup computes a row of fewer segments in less time than the two or three dispatches
     * take in which each segment has a workgroup. */
    LEAST_SEGMENTS = 3,
};

static uint64_t segments_of(int64_t count)
{
    return ((uint32_t)count - 1) / TSR_SEGMENT_LENGTH((uint32_t)count) + 1;
}

bool tsr__segments_suit(const tsr_device *device, uint64_t rows, int64_t count)
{
    return !device->traits.few_invocations && count > 0 && count <= INT32_MAX &&
           segments_of(count) >= LEAST_SEGMENTS &&
           tsr__thread_group_for(device, rows, count) > TSR_UNDIVIDED_THREADS &&
           rows < tsr__processors(device);
}

bool tsr__segments_chosen(tsr_device *device, const tsr__dispatch *whole, uint64_t rows,
                          int64_t count)
{
    uint32_t spec[TSR__SPEC_MAX];

    if (!tsr__segments_suit(device, rows, count))
        return false;
    memcpy(spec, whole->spec, sizeof spec);
    spec[whole->spec_count] = TSR_PHASE_LAST;
    return tsr__shader_admitted(device, whole->shader, spec, whole->spec_count + 1);
}

tsr_status tsr__segments_scratch(tsr_stream *stream, uint64_t rows, int64_t count,
                                 tsr__buffer **out)
{
    const uint32_t threads = tsr__thread_group_for(tsr_stream_device(stream), rows, count);
    const uint64_t row_floats =
        TSR_SEGMENT_SUMS_AT + TSR_SEGMENT_SUMS * segments_of(count) * threads;

    return tsr__stream_scratch(stream, rows * row_floats * sizeof(float), out);
}

tsr_status tsr__segments_add(tsr__dispatches *list, tsr__dispatch *dispatch, uint64_t rows,
                             int64_t count, uint32_t first, tsr__buffer *scratch)
{
    const int phase = dispatch->spec_count++;

    if (scratch)
        dispatch->access[dispatch->access_count++] = tsr__write_buffer(scratch);
    tsr__groups_for(rows * segments_of(count), 1, dispatch->groups);
    for (dispatch->spec[phase] = first; dispatch->spec[phase] <= TSR_PHASE_LAST;
         dispatch->spec[phase]++)
        TSR__TRY(tsr__dispatches_add(list, dispatch));
    return TSR_OK;
}
