// Chooses a token from each row of logits, in the same way as tsr_sampling_draw on the host
// (params/choose.h). A workgroup works on a row. Sums are integers, so they do not depend on the
// order of additions, nor on the number of invocations.
//
// Tokens are in the order of their keys, which are integers in the order of logits (argmax.glsl).
// top_k and top_p each find the least key that they keep, eight bits at a time, by a histogram of
// the number of tokens or of their weights. All tokens above that key are kept; of those that have
// it, top_p keeps the ones with the highest ids. The random number then selects a place in the sum
// of the kept weights, in the order of ids.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/argmax.glsl"
#include "include/tessera.glsl"
#include "include/choice.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 128; // a power of two, at least 16
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;

layout(push_constant, std430) uniform tsr_push
{
    tsr_choose_params p;
};

const uint KEY_MINUS_INFINITY = 0x007fffffu, KEY_INFINITY = 0xff800000u;

shared uvec2 bests[WORKGROUP];
shared uvec4 sums[WORKGROUP];
shared uint lows[256], highs[256]; // the histogram, as 64-bit numbers
shared uvec2 groups[16];
shared uvec4 found;

uvec4 head, filters, limits; // the words of tsr_choice_words
uvec2 row, seen;
uint member;
float largest;

// The logit of token i after the penalty.
float logit_of(uint i)
{
    float logit = tsr_floats(row).v[i];
    if ((head.x & TSR_CHOICE_PENALISED) != 0u && (tsr_words(seen).v[i >> 5] >> (i & 31u) & 1u) != 0u)
        logit = tsr_choice_penalised(logit, uintBitsToFloat(head.z), uintBitsToFloat(head.w));
    return logit;
}

uvec2 weight_of(float logit)
{
    return tsr_choice_weight(tsr_choice_distance(largest, logit, uintBitsToFloat(head.y)));
}

// Finds the largest key, the lowest id that has it, the number of tokens above −inf, and whether a
// logit is NaN or +inf: sums[0].
void find_largest()
{
    uvec2 best = uvec2(0u, 0xffffffffu);
    uint finite = 0u, wrong = 0u;
    for (uint i = member; i < p.count; i += WORKGROUP) {
        uint key = argmax_key(logit_of(i));
        best = key > best.x ? uvec2(key, i) : best;
        finite += key > KEY_MINUS_INFINITY ? 1u : 0u;
        wrong |= argmax_key(tsr_floats(row).v[i]) >= KEY_INFINITY ? 1u : 0u;
    }
    sums[member] = uvec4(best, finite, wrong);
    for (uint half_of_them = WORKGROUP / 2u; half_of_them > 0u; half_of_them /= 2u) {
        barrier();
        if (member < half_of_them) {
            uvec4 mine = sums[member], other = sums[member + half_of_them];
            sums[member] = uvec4(argmax_better(mine.xy, other.xy), mine.z + other.z, mine.w | other.w);
        }
    }
    barrier();
}

// Finds the largest key K so that the tokens from K on, of those from `limit` on, are `wanted` or
// more: their number, or, if `by_weight` is set, the sum of their weights. There must be such a
// key. Returns K, and how much of `wanted` the tokens above K leave.
uvec3 select(bool by_weight, uvec2 wanted, uint limit)
{
    uint prefix = 0u;
    for (uint bits = 32u; bits > 0u; bits -= 8u) {
        for (uint b = member; b < 256u; b += WORKGROUP)
            lows[b] = highs[b] = 0u;
        barrier();
        for (uint i = member; i < p.count; i += WORKGROUP) {
            float logit = logit_of(i);
            uint key = argmax_key(logit);
            if (key <= KEY_MINUS_INFINITY || key < limit || (bits < 32u && key >> (bits & 31u) != prefix))
                continue;
            uvec2 amount = by_weight ? weight_of(logit) : uvec2(1u, 0u);
            uint digit = key >> (bits - 8u) & 255u;
            uint before = atomicAdd(lows[digit], amount.x);
            // A sum that wraps around is smaller than its first operand.
            atomicAdd(highs[digit], amount.y + (before + amount.x < before ? 1u : 0u));
        }
        barrier();
        if (member < 16u) {
            uvec2 sum = uvec2(0u);
            for (uint b = 16u * member; b < 16u * member + 16u; b++)
                sum = tsr_add64(sum, uvec2(lows[b], highs[b]));
            groups[member] = sum;
        }
        barrier();
        if (member == 0u) {
            uint group = 15u;
            for (; group > 0u && tsr_less64(groups[group], wanted); group--)
                wanted = tsr_sub64(wanted, groups[group]);
            uint digit = 16u * group + 15u;
            for (; digit > 16u * group; digit--) {
                uvec2 sum = uvec2(lows[digit], highs[digit]);
                if (!tsr_less64(sum, wanted))
                    break;
                wanted = tsr_sub64(wanted, sum);
            }
            found = uvec4(digit, wanted, 0u);
        }
        barrier();
        prefix = prefix << 8 | found.x;
        wanted = found.yz;
    }
    return uvec3(prefix, wanted);
}

// The sum of the weights of tokens whose key is `limit` or more.
uvec2 sum_from(uint limit)
{
    uvec2 sum = uvec2(0u);
    for (uint i = member; i < p.count; i += WORKGROUP) {
        float logit = logit_of(i);
        uint key = argmax_key(logit);
        if (key > KEY_MINUS_INFINITY && key >= limit)
            sum = tsr_add64(sum, weight_of(logit));
    }
    bests[member] = sum;
    for (uint half_of_them = WORKGROUP / 2u; half_of_them > 0u; half_of_them /= 2u) {
        barrier();
        if (member < half_of_them)
            bests[member] = tsr_add64(bests[member], bests[member + half_of_them]);
    }
    barrier();
    return bests[0];
}

// The least n for which n · weight is `wanted` or more. It must be at most 2^23, so that products have
// 64 bits.
uint fewest(uvec2 weight, uvec2 wanted)
{
    uint below = 0u;
    for (uint bit = 1u << 22; bit > 0u; bit >>= 1)
        if (tsr_less64(tsr_mul64(weight, below + bit), wanted))
            below += bit;
    return below + 1u;
}

void write(uint token, int result, uint row_number)
{
    tsr_words(p.ids).v[row_number] = token;
    tsr_words(p.results).v[row_number] = uint(result);
    if (result >= 0 && (p.seen.x | p.seen.y) != 0u)
        tsr_words(seen).v[token >> 5] |= 1u << (token & 31u);
}

// Draws among the tokens above `limit`, and those that have this key except the first `skipped` of
// them; if `skipping` is not set, none is skipped, otherwise all but the last `kept` are.
void draw(uint limit, bool skipping, uint kept, uint row_number)
{
    uvec2 least = limits.xy;
    uint each = (p.count + WORKGROUP - 1u) / WORKGROUP;
    uint begin = min(member * each, p.count), end = min(begin + each, p.count);
    uvec2 above = uvec2(0u), tie = uvec2(0u);
    uint ties = 0u;
    for (uint i = begin; i < end; i++) {
        float logit = logit_of(i);
        uint key = argmax_key(logit);
        if (key <= KEY_MINUS_INFINITY || key < limit)
            continue;
        uvec2 weight = weight_of(logit);
        weight = tsr_less64(weight, least) ? uvec2(0u) : weight;
        if (key == limit)
            ties++;
        else
            above = tsr_add64(above, weight);
    }
    // Every invocation needs the weight of the tokens that have the key `limit`.
    uint limit_bits = (limit & 0x80000000u) != 0u ? limit & 0x7fffffffu : ~limit;
    if (limit != 0u)
        tie = weight_of(uintBitsToFloat(limit_bits));
    tie = tsr_less64(tie, least) ? uvec2(0u) : tie;

    uvec4 mine = uvec4(above, ties, 0u);
    sums[member] = mine;
    for (uint distance = 1u; distance < WORKGROUP; distance *= 2u) {
        barrier();
        uvec4 other = member >= distance ? sums[member - distance] : uvec4(0u);
        barrier();
        mine = uvec4(tsr_add64(mine.xy, other.xy), mine.z + other.z, 0u);
        sums[member] = mine;
    }
    barrier();
    uvec4 all = sums[WORKGROUP - 1u];
    uint skip = skipping ? all.z - kept : 0u;
    uint ties_before = mine.z - ties;
    uvec2 to = tsr_add64(mine.xy, tsr_mul64(tie, max(mine.z, skip) - skip));
    uvec2 from = tsr_add64(tsr_sub64(mine.xy, above), tsr_mul64(tie, max(ties_before, skip) - skip));
    uvec2 total = tsr_add64(all.xy, tsr_mul64(tie, all.z - skip));
    uvec2 place = tsr_mul_high64(limits.zw, total);
    if (tsr_less64(place, from) || !tsr_less64(place, to))
        return; // another invocation has the token
    uvec2 sum = from;
    for (uint i = begin; i < end; i++) {
        float logit = logit_of(i);
        uint key = argmax_key(logit);
        if (key <= KEY_MINUS_INFINITY || key < limit)
            continue;
        uvec2 weight = key == limit ? tie : weight_of(logit);
        if (key == limit && ties_before++ < skip)
            continue;
        if (!tsr_less64(weight, least))
            sum = tsr_add64(sum, weight);
        if (tsr_less64(place, sum)) {
            write(i, int(i), row_number);
            break;
        }
    }
}

void main()
{
    uint row_number = tsr_flat_group();
    if (row_number >= p.rows)
        return;
    member = gl_LocalInvocationID.x;
    uvec2 choice = tsr_at_mul(p.choices, row_number, 64u);
    head = tsr_words4(choice).v[0];
    filters = tsr_words4(choice).v[1];
    limits = tsr_words4(choice).v[2];
    uint high, low, carry;
    umulExtended(row_number, p.row_step.x, high, low);
    low = uaddCarry(p.logits.x, low, carry);
    row = uvec2(low, p.logits.y + high + row_number * p.row_step.y + carry);
    seen = tsr_at_mul(p.seen, filters.y * p.seen_words, 4u);

    find_largest();
    uvec4 best = sums[0];
    barrier();
    if (best.w != 0u || best.x <= KEY_MINUS_INFINITY || (head.x & TSR_CHOICE_GREEDY) != 0u) {
        if (member == 0u)
            write(best.w != 0u || best.x <= KEY_MINUS_INFINITY ? 0u : best.y,
                  best.w != 0u                   ? TSR_CHOICE_NOT_FINITE
                  : best.x <= KEY_MINUS_INFINITY ? TSR_CHOICE_NOTHING
                                                 : int(best.y),
                  row_number);
        return;
    }
    largest = uintBitsToFloat((best.x & 0x80000000u) != 0u ? best.x & 0x7fffffffu : ~best.x);

    uint limit = 0u, kept = 0u;
    bool skipping = (head.x & TSR_CHOICE_TOP_P) != 0u;
    if (filters.x != 0u && filters.x < best.z)
        limit = select(false, uvec2(filters.x, 0u), 0u).x;
    if (skipping) {
        uvec2 wanted = tsr_mul_high64(filters.zw, sum_from(limit));
        wanted = wanted == uvec2(0u) ? uvec2(1u, 0u) : wanted;
        uvec3 last = select(true, wanted, limit);
        limit = last.x;
        uint bits = (limit & 0x80000000u) != 0u ? limit & 0x7fffffffu : ~limit;
        kept = fewest(weight_of(uintBitsToFloat(bits)), last.yz);
    }
    draw(limit, skipping, kept, row_number);
}
