/* Sorts pairs by expert, on the device. */
#include "gpu/device/device.h"
#include "gpu/experts/experts.h"
#include "shaders/params/route.h"
#include "tensor/check.h"

/* The number of invocations, a power of two. Not every device can run more than 128. */
static uint32_t threads_on(const tsr_device *device)
{
    return device->info.max_workgroup_invocations >= 256 ? 256 : 128;
}

tsr_status tsr__sort_check(const char *op, const tsr_stream *stream, const tsr__pairs *pairs)
{
    const tsr_device *device = tsr_stream_device(stream);
    const uint64_t most = (uint64_t)device->traits.most_iterations / 2 * threads_on(device);
    const uint64_t count = (uint64_t)pairs->tokens * pairs->chosen;
    TSR__REQUIRE(count <= most, "%s: there are %llu pairs; at most %llu on this device", op,
                 (unsigned long long)count, (unsigned long long)most);
    return TSR_OK;
}

tsr_status tsr__sort_pairs(tsr_stream *stream, const tsr__pairs *pairs, uint32_t experts,
                           const tsr__sorted *out)
{
    tsr__sorted results = *out;
    results.order.write = results.offsets.write = true;
    const struct tsr_route_sort_push push = {
        .ids = tsr__tensor_address(pairs->ids),
        .order = tsr__access_address(results.order),
        .offsets = tsr__access_address(results.offsets),
        .pairs = pairs->tokens * pairs->chosen,
        .experts = experts,
        .chosen = pairs->chosen,
        .ids_stride = pairs->ids_stride,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_ROUTE_SORT,
        .spec_count = 1,
        .spec = {threads_on(tsr_stream_device(stream))},
        .push = &push,
        .push_bytes = sizeof push,
        .work = (double)push.pairs * 2 * experts,
        .access_count = 3,
        .access = {tsr__read_of(pairs->ids), results.order, results.offsets},
    };
    tsr__groups_for(experts, 1, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}

tsr_status tsr_route_sort(tsr_stream *stream, tsr_tensor *order, tsr_tensor *offsets,
                          const tsr_tensor *ids)
{
    const char *op = "route_sort";
    tsr__pairs pairs;
    tsr__sorted sorted;
    int64_t experts;
    TSR__TRY(tsr__pairs_of(op, stream, ids, &pairs));
    TSR__TRY(tsr__sorted_of(op, stream, order, offsets, (int64_t)pairs.tokens * pairs.chosen,
                            &experts, &sorted));
    TSR__REQUIRE(experts >= 1,
                 "%s: offsets has one element; it needs one more than there are "
                 "experts",
                 op);
    TSR__TRY(tsr__sort_check(op, stream, &pairs));
    TSR__TRY(tsr__require_disjoint(op, "order", order, "ids", ids, false));
    TSR__TRY(tsr__require_disjoint(op, "offsets", offsets, "ids", ids, false));
    TSR__TRY(tsr__require_disjoint(op, "offsets", offsets, "order", order, false));
    return tsr__sort_pairs(stream, &pairs, (uint32_t)experts, &sorted);
}
