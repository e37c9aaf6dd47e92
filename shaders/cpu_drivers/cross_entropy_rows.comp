// The second of three kernels for cross-entropy on Mesa's CPU driver, after softmax_chunks.comp and
// before softmax_apply.comp. An invocation computes the statistics of one row, its loss, and the
// last columns of its gradient if they do not fill a vector. If the classes are divided among
// ranks, the kernel runs in two steps, like cross_entropy_shard.comp.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "cpu_drivers/softmax_stats.glsl"
#include "params/cross_entropy_rows.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint STEP = TSR_ROWS_ALONE;
layout(constant_id = 2) const uint LOGITS_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint LOSS_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint GRADIENT_DTYPE = TSR_DT_F32;

layout(push_constant) uniform Push {
    tsr_cross_entropy_rows_push p;
};

const uint FUNCTION = TSR_SOFTMAX_LOSS;
#include "cpu_drivers/softmax_result.glsl"

struct statistics {
    float largest, sum, picked; // picked: the label's logit, or 0 if another shard has the label's class
};

uvec2 plane_at(uint plane, uint row)
{
    return tsr_at_mul(tsr_at_stride(p.planes, plane, p.plane_bytes), row, 4u);
}

statistics of_chunks(uvec2 logits, uint row, uint place)
{
    uvec2 chunks = tsr_at_mul(p.chunks, row * p.across, TSR_SOFTMAX_CHUNK_BYTES);
    vec2 exponentials = tsr_row_exponentials(chunks, p.across);
    float picked = place < p.here ? tsr_load_float(logits, place, LOGITS_DTYPE) : 0.0;
    return statistics(exponentials.x, exponentials.y, picked);
}

statistics of_planes(uint row)
{
    statistics all = statistics(uintBitsToFloat(0xff800000u), 0.0, 0.0);
    for (uint r = 0u; r < p.ranks; r++)
        all.largest = max(all.largest, tsr_floats(plane_at(3u * r, row)).v[0]);
    for (uint r = 0u; r < p.ranks; r++) {
        float shard_sum = tsr_floats(plane_at(3u * r + 1u, row)).v[0];
        all.sum += shard_sum * tsr_exp(tsr_floats(plane_at(3u * r, row)).v[0] - all.largest);
        all.picked += tsr_floats(plane_at(3u * r + 2u, row)).v[0];
    }
    return all;
}

void write_result(statistics all, uvec2 logits, uint row, uint place, bool ignored)
{
    if (p.loss != uvec2(0u)) {
        float loss = ignored ? 0.0 : tsr_log(all.sum) + (all.largest - all.picked);
        tsr_store_float(tsr_at_stride(p.loss, row, p.loss_stride), 0u, LOSS_DTYPE, loss);
    }
    if (p.gradient == uvec2(0u))
        return;
    uint mark = ignored ? TSR_SOFTMAX_IGNORED : place < p.here ? place : TSR_SOFTMAX_ELSEWHERE;
    vec4 stats = vec4(all.largest, 1.0 / all.sum, p.scale, uintBitsToFloat(mark));
    tsr_floats4(tsr_at_mul(p.stats, row, TSR_SOFTMAX_ROW_BYTES)).v[0] = stats;
    for (uint j = p.whole; j < p.here; j++) {
        float value = softmax_result(tsr_load_float(logits, j, LOGITS_DTYPE), 0.0, stats, mark - j);
        tsr_store_float(tsr_at_mul(p.gradient, row, p.gradient_row), j, GRADIENT_DTYPE, value);
    }
}

void main()
{
    uint row = tsr_flat_invocation();
    if (row >= p.rows)
        return;
    uint label = tsr_load_index(p.labels, row, p.labels_stride, p.label_bytes);
    uint place = label >= p.first ? label - p.first : TSR_NO_INDEX;
    uvec2 logits = tsr_at_mul(p.logits, row, p.logits_row);
    statistics own;
    if (STEP == TSR_ROWS_WHOLE)
        own = of_planes(row);
    else
        own = of_chunks(logits, row, place);
    if (STEP == TSR_ROWS_SHARD) {
        tsr_floats(plane_at(0u, row)).v[0] = own.largest;
        tsr_floats(plane_at(1u, row)).v[0] = own.sum;
        tsr_floats(plane_at(2u, row)).v[0] = own.picked;
    } else {
        write_result(own, logits, row, place, label >= p.classes);
    }
}
