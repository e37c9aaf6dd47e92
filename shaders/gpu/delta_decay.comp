// The decay of each token of a chunk; delta.glsl explains the numbers. An invocation computes one chunk of one head.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/delta.h"

layout(local_size_x_id = 0) in;

layout(push_constant, std430) uniform tsr_push
{
    tsr_delta_decay_push p;
};

#include "include/delta.glsl"
#include "include/exp_log.glsl"

float load_g(uint row, uint head)
{
    // no difference of sums may be that of two infinities
    return max(tsr_floats(tsr_at_mul(p.g, row, p.g_stride * 4u)).v[head], -1e4);
}

void main()
{
    uint n = tsr_flat_invocation();
    if (n >= p.batch * p.chunks * HEADS)
        return;
    uint head = n % HEADS, chunk = n / HEADS, b = chunk / p.chunks, first = chunk % p.chunks * CHUNK;
    uint length = (p.lengths.x | p.lengths.y) == 0u ? p.tokens
                                                    : uint(clamp(int(tsr_words(p.lengths).v[b]), 0, int(p.tokens)));
    uint count = length > first ? min(length - first, CHUNK) : 0u;
    bool packed = (p.starts.x | p.starts.y) != 0u;
    precise float last = 0.0;
    for (uint t = 0u; t < count; t++)
        last += load_g(b * p.tokens + first + t, head);
    uint last_start = 0u;
    float carry_out = 1.0;
    if (count > 0u) {
        int start = packed ? int(tsr_words(p.starts).v[b * p.tokens + first + count - 1u]) : -1;
        last_start = uint(clamp(start - int(first), 0, int(count) - 1));
        carry_out = start >= int(first) ? 0.0 : tsr_exp(last);
    }
    precise float sum = 0.0;
    for (uint t = 0u; t < CHUNK; t++) {
        vec4 numbers = vec4(0.0), rest = vec4(0.0);
        if (t < count) {
            uint row = b * p.tokens + first + t;
            sum += load_g(row, head);
            int start = packed ? int(tsr_words(p.starts).v[row]) : -1;
            float beta = tsr_floats(tsr_at_mul(p.beta, row, p.beta_stride * 4u)).v[head];
            numbers = vec4(sum, start >= int(first) ? 0.0 : tsr_exp(sum), t < last_start ? 0.0 : tsr_exp(last - sum), beta);
            rest.x = float(clamp(start - int(first), 0, int(t)));
            rest.z = 1.0;
        } else {
            numbers.x = last;
            rest.x = float(t);
        }
        rest.y = carry_out;
        uvec2 to = delta_row(p.work, p.decay, (chunk * HEADS + head) * CHUNK + t, TSR_DELTA_DECAY_FLOATS);
        tsr_floats4(to).v[0] = numbers;
        tsr_floats4(to).v[1] = rest;
    }
}
