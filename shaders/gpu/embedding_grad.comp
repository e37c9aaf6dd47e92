// Adds each row of dy to the row of a table that its index names. The table's rows are divided into
// buckets (row modulo buckets). A workgroup adds to some columns of the rows of one bucket and goes
// through all indices in order. No other workgroup adds to these elements, so that they are added
// in the order of the indices.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "params/embedding.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint TABLE_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint FORM = TSR_ROW_WIDE; // a form (TSR_ROW_…) that table and y both have
// If SCAN > 0, the invocations of a workgroup look at SCAN indices each and list those of the
// bucket. If SCAN is 0, every invocation looks at every index, which is faster on CPU drivers,
// where barriers are slow and there is only one bucket.
layout(constant_id = 4) const uint SCAN = 0;
layout(constant_id = 5) const uint INDEX_BYTES = 0; // 0: p.index_bytes

layout(push_constant) uniform Push {
    tsr_embedding_params p;
};

const uint CHUNK = SCAN > 0u ? SCAN * WORKGROUP : 32u; // the indices that a workgroup scans at a time, a multiple of 32
const uint WORDS = CHUNK / 32u;
const uint LOOKS = SCAN > 0u ? SCAN : 1u; // how many indices of a chunk an invocation looks at

shared uint ours[WORDS];   // for each index of the chunk a bit that says whether the index is in the bucket
shared uint before[WORDS]; // the number of bits set in earlier words
shared uint ours_count;    // the number of bits set in all words
// The indices of the bucket in a chunk, or as many of them as fit in the list. There are usually
// few.
const uint LISTED = SCAN > 0u ? 256u : 1u;
shared uint positions[LISTED]; // rows of the table
shared uint rows[LISTED];      // rows of y

// Returns the row of the table that row `row` of y is added to; at least p.here if it is not in the
// table.
uint position_of(uint row)
{
    // Differences that wrap are larger than any number of rows.
    return tsr_load_index(p.indices, row, p.indices_stride, INDEX_BYTES > 0u ? INDEX_BYTES : p.index_bytes) -
           p.first;
}

bool is_ours(uint position)
{
    return position < p.here && (position & p.buckets - 1u) == gl_WorkGroupID.y;
}

vec4 load_table(uint position, uint j)
{
    return tsr_load_row4(tsr_at_stride(p.table, position, p.table_stride), p.table_step, j, p.width, TABLE_DTYPE,
                         FORM, 0.0);
}

vec4 load_y(uint row, uint j)
{
    return tsr_load_row4(tsr_at_stride(p.y, row, p.y_stride), p.y_step, j, p.width, Y_DTYPE, FORM, 0.0);
}

void store_table(uint position, uint j, vec4 value)
{
    tsr_store_row4(tsr_at_stride(p.table, position, p.table_stride), p.table_step, j, p.width, TABLE_DTYPE, FORM,
                   value);
}

vec4 sum_of(vec4 a, vec4 b)
{
    precise vec4 sum = a + b;
    return sum;
}

// Returns the sum, rounded to the table's dtype, in which sums are kept.
vec4 kept_sum(vec4 a, vec4 b)
{
    vec4 sum = sum_of(a, b);
    if (TABLE_DTYPE == TSR_DT_F16) {
        uvec4 bits = tsr_f16_from_f32(sum);
        return vec4(tsr_f32_from_f16(bits.x), tsr_f32_from_f16(bits.y), tsr_f32_from_f16(bits.z),
                    tsr_f32_from_f16(bits.w));
    }
    return TABLE_DTYPE == TSR_DT_BF16 ? uintBitsToFloat(tsr_bf16_from_f32(sum) << 16) : sum;
}

// The number of additions (of a row of dy to a row of the table) whose operands are loaded
// together. Several of them may be to the same row of the table.
const uint BATCH = 6u;
const uint SMALL_BATCH = 4u; // enough for most buckets

// Returns the value to which addition `mine` adds: the sum of the latest earlier addition to the
// same row, or if there is none, sums[mine], which has been loaded from the table.
vec4 latest(uint mine, uint at[BATCH], vec4 sums[BATCH])
{
    vec4 value = sums[mine];
    [[unroll]] for (uint k = 0u; k < mine; k++)
        value = at[k] == at[mine] ? sums[k] : value;
    return value;
}

// Makes additions number `from` to from + count − 1 of the list, for columns j … j+3. `count` is at
// most `batch`, which is a constant.
void add_batch(uint from, uint count, uint batch, uint j)
{
    uint at[BATCH];
    vec4 sums[BATCH], added[BATCH];
    [[unroll]] for (uint i = 0u; i < BATCH; i++) {
        if (i < batch) {
            // Past the end, the last row is loaded again and ignored.
            uint entry = from + min(i, count - 1u);
            at[i] = positions[entry];
            sums[i] = load_table(at[i], j);
            added[i] = load_y(rows[entry], j);
        } else {
            at[i] = 0u;
            sums[i] = added[i] = vec4(0.0);
        }
    }
    // There is no loop, because glslc's optimizer drops `precise` when it unrolls a loop.
    sums[0] = kept_sum(sums[0], added[0]);
    sums[1] = kept_sum(latest(1u, at, sums), added[1]);
    sums[2] = kept_sum(latest(2u, at, sums), added[2]);
    sums[3] = kept_sum(latest(3u, at, sums), added[3]);
    if (batch > SMALL_BATCH) {
        sums[4] = kept_sum(latest(4u, at, sums), added[4]);
        sums[5] = kept_sum(latest(5u, at, sums), added[5]);
    }
    [[unroll]] for (uint i = 0u; i < BATCH; i++) {
        if (i < batch) {
            uint later = 0u; // the number of later additions to the same row, counted without branches
            [[unroll]] for (uint k = i + 1u; k < BATCH; k++)
                later |= uint(k < count) & uint(at[k] == at[i]);
            if (i < count && later == 0u)
                store_table(at[i], j, sums[i]);
        }
    }
}

// Marks the indices of the bucket among those from number `begin` on, and counts them.
void scan(uint begin, out uint position[LOOKS])
{
    uint self = gl_LocalInvocationID.x;
    for (uint w = self; w < WORDS; w += WORKGROUP)
        ours[w] = 0u;
    [[unroll]] for (uint s = 0u; s < LOOKS; s++)
        position[s] = position_of(min(begin + s * WORKGROUP + self, p.rows - 1u));
    barrier();
    [[unroll]] for (uint s = 0u; s < LOOKS; s++) {
        uint at = s * WORKGROUP + self;
        if (is_ours(position[s]) && begin + at < p.rows)
            atomicOr(ours[at / 32u], 1u << (at % 32u));
    }
    barrier();
    for (uint w = self; w < WORDS; w += WORKGROUP) {
        // unrolled, so that the loads do not wait for each other
        uint count = 0u;
        [[unroll]] for (uint v = 0u; v < WORDS; v++) {
            uint bits = uint(bitCount(ours[v]));
            count += v < w ? bits : 0u;
        }
        before[w] = count;
        if (w == WORDS - 1u)
            ours_count = count + bitCount(ours[w]);
    }
    barrier();
}

// Lists the marked indices from the marked index number `from` on, as many as fit.
void list(uint begin, uint from, uint position[LOOKS])
{
    uint self = gl_LocalInvocationID.x;
    [[unroll]] for (uint s = 0u; s < LOOKS; s++) {
        uint at = s * WORKGROUP + self, bit = 1u << (at % 32u), word = ours[at / 32u];
        if ((word & bit) != 0u) {
            uint entry = before[at / 32u] + bitCount(word & bit - 1u) - from;
            if (entry < LISTED) { // false also if the difference has wrapped
                positions[entry] = position[s];
                rows[entry] = begin + at;
            }
        }
    }
    barrier();
}

void add_listed(uint count, uint j)
{
    uint from = 0u;
    for (; count - from > SMALL_BATCH; from += min(count - from, BATCH))
        add_batch(from, min(count - from, BATCH), BATCH, j);
    if (from < count)
        add_batch(from, count - from, SMALL_BATCH, j);
}

void main()
{
    uint j = 4u * gl_GlobalInvocationID.x;
    if (SCAN == 0u) {
        for (uint row = 0u; j < p.width && row < p.rows; row++) {
            uint position = position_of(row);
            if (is_ours(position))
                store_table(position, j, sum_of(load_table(position, j), load_y(row, j)));
        }
        return;
    }
    for (uint begin = 0u; begin < p.rows; begin += CHUNK) {
        uint position[LOOKS];
        scan(begin, position);
        for (uint from = 0u; from < ours_count; from += LISTED) {
            list(begin, from, position);
            if (j < p.width)
                add_listed(min(ours_count - from, LISTED), j);
            barrier(); // before the list and the marks are overwritten
        }
    }
}
