// Rotary position embedding. An invocation rotates four neighbouring pairs of a row.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/rope.glsl"
#include "include/walk.glsl"
#include "params/rope.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint Y_FORM = TSR_ROPE_FORM_VECTORS;
layout(constant_id = 4) const uint X_FORM = TSR_ROPE_FORM_VECTORS;
layout(constant_id = 5) const uint ADJACENT = 0u; // 1: the components of a pair are neighbours
layout(constant_id = 6) const uint BACK = 0u;     // 1: rotates in the opposite direction, for gradients
layout(constant_id = 7) const uint REPEAT = 0u;   // 1: see `repeats` in params/rope.h

layout(push_constant, std430) uniform Push {
    tsr_rope_push p;
};

void rope_load(uint at, uint count, out vec4 u, out vec4 w)
{
    if (X_FORM == TSR_ROPE_FORM_VECTORS) {
        u = rope_load4(p.x, at, X_DTYPE);
        w = rope_load4(p.x, at + (ADJACENT != 0u ? 4u : p.x_second), X_DTYPE);
        if (ADJACENT != 0u) {
            vec4 front = u, back = w;
            u = vec4(front.xz, back.xz);
            w = vec4(front.yw, back.yw);
        }
        return;
    }
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        uint pair = at + min(k, count - 1u) * p.x_strides[3];
        u[k] = tsr_load_float(p.x, pair, X_DTYPE);
        w[k] = tsr_load_float(p.x, pair + p.x_second, X_DTYPE);
    }
}

void rope_store(uint at, uint count, vec4 u, vec4 w)
{
    if (Y_FORM == TSR_ROPE_FORM_VECTORS) {
        if (ADJACENT != 0u) {
            rope_store4(p.y, at, Y_DTYPE, vec4(u.x, w.x, u.y, w.y));
            rope_store4(p.y, at + 4u, Y_DTYPE, vec4(u.z, w.z, u.w, w.w));
        } else {
            rope_store4(p.y, at, Y_DTYPE, u);
            rope_store4(p.y, at + p.y_second, Y_DTYPE, w);
        }
        return;
    }
    [[unroll]] for (uint k = 0u; k < 4u; k++)
        if (k < count) {
            tsr_store_float(p.y, at + k * p.y_strides[3], Y_DTYPE, u[k]);
            tsr_store_float(p.y, at + k * p.y_strides[3] + p.y_second, Y_DTYPE, w[k]);
        }
}

void main()
{
    uint item = tsr_flat_invocation();
    if (item >= p.walk.items)
        return;
    uvec4 position = tsr_walk_position(p.walk, item);
    position.w *= 4u;
    uint count = min(4u, p.walk.inner - position.w);
    int place = int(tsr_words(p.positions).v[position.x * p.position_strides[0] + position.y * p.position_strides[1] +
                                             position.z * p.position_strides[2]]);
    vec4 cosine, sine, u, w;
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        uvec2 frequency = tsr_words2(p.table).v[position.w + min(k, count - 1u)];
        vec2 turn = rope_turn(rope_angle(place, frequency));
        cosine[k] = turn.x;
        sine[k] = BACK != 0u ? -turn.y : turn.y;
    }
    uint x = tsr_walk_element(position, p.x_strides), y = tsr_walk_element(position, p.y_strides);
    cosine *= p.scale;
    sine *= p.scale;
    if (REPEAT == 0u) {
        rope_load(x, count, u, w);
        rope_store(y, count, u * cosine - w * sine, u * sine + w * cosine);
        return;
    }
    for (uint i = 0u; i < p.repeats; i++) {
        rope_load(x + i * p.x_strides[0], count, u, w);
        rope_store(y + i * p.y_strides[0], count, u * cosine - w * sine, u * sine + w * cosine);
    }
}
