// The gated delta rule, token by token. A workgroup computes WORKGROUP / TSR_DELTA_LANES columns of a head's state, which it keeps in
// registers: the rows of a column are divided among TSR_DELTA_LANES invocations. The state is read once and written once, each column
// by the invocations that read it, so that the new state may be the old one.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/delta.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;

layout(push_constant, std430) uniform tsr_push
{
    tsr_delta_step_push p;
};

#include "include/delta.glsl"
#include "include/exp_log.glsl"
#include "include/rows.glsl"

layout(constant_id = 6) const uint Q_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint K_DTYPE = TSR_DT_F32;
layout(constant_id = 8) const uint V_DTYPE = TSR_DT_F32;
layout(constant_id = 9) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 10) const uint EPSILON_BITS = 0; // of a float; 0: rows are not normalised
layout(constant_id = 11) const uint SLOTS = 0;

#include "include/slots.glsl"

const uint LANES = TSR_DELTA_LANES;
const uint COLUMNS = WORKGROUP / LANES;
const uint HELD = KEY_DIM / LANES; // rows of a column that an invocation has
const uint OWN = (KEY_DIM + WORKGROUP - 1u) / WORKGROUP;

shared float query[KEY_DIM], key[KEY_DIM];
shared vec3 products[WORKGROUP]; // parts of q·q, k·k and q·k
shared vec2 dots[WORKGROUP];     // parts of the state's columns times k and q

void main()
{
    uint i = gl_LocalInvocationID.x, blocks = (VALUE_DIM + COLUMNS - 1u) / COLUMNS;
    uint group = tsr_flat_group();
    if (group >= p.batch * HEADS * blocks)
        return;
    uint head = group / blocks % HEADS, b = group / blocks / HEADS;
    uint lane = i / COLUMNS, column = group % blocks * COLUMNS + i % COLUMNS;
    bool owner = column < VALUE_DIM;
    uint length = (p.lengths.x | p.lengths.y) == 0u ? p.tokens
                                                    : uint(clamp(int(tsr_words(p.lengths).v[b]), 0, int(p.tokens)));
    float held[HELD];
    uint old_slot = tsr_slot(TSR_READS_SLOTS, p.starts_or_read_slots, b, p.slots);
    uvec2 old_state = tsr_at_mul(p.state, old_slot * HEADS + head, KEY_DIM * VALUE_DIM * 4u);
    bool zero = (p.state.x | p.state.y) == 0u || !owner || (TSR_READS_SLOTS && old_slot == TSR_NO_SLOT);
    [[unroll]] for (uint n = 0u; n < HELD; n++) {
        held[n] = 0.0;
        if (!zero)
            held[n] = tsr_floats(old_state).v[(lane * HELD + n) * VALUE_DIM + column];
    }
    bool each = (SLOTS & TSR_SLOTS_EACH_TOKEN) != 0u;
    for (uint t = 0u; t < length; t++) {
        uint row = b * p.tokens + t;
        uvec2 q = tsr_at_mul(p.q, row, p.q_stride * tsr_dtype_bytes(Q_DTYPE)), k = tsr_at_mul(p.k, row, p.k_stride * tsr_dtype_bytes(K_DTYPE));
        uint first = delta_key_head(head) * KEY_DIM;
        precise vec3 sums = vec3(0.0);
        for (uint n = 0u; n < OWN; n++) {
            uint at = n * WORKGROUP + i;
            if (at < KEY_DIM) {
                float a = tsr_load_float(q, first + at, Q_DTYPE), c = tsr_load_float(k, first + at, K_DTYPE);
                query[at] = a;
                key[at] = c;
                sums += vec3(a * a, c * c, a * c);
            }
        }
        products[i] = sums;
        barrier();
        sums = vec3(0.0);
        for (uint n = 0u; n < WORKGROUP; n++)
            sums += products[n];
        float of_q = p.scale, of_k = 1.0;
        if (EPSILON_BITS != 0u) {
            of_q *= 1.0 / sqrt(sums.x + uintBitsToFloat(EPSILON_BITS));
            of_k = 1.0 / sqrt(sums.y + uintBitsToFloat(EPSILON_BITS));
        }
        uvec2 starts = p.starts_or_read_slots;
        if (!TSR_READS_SLOTS && (starts.x | starts.y) != 0u && int(tsr_words(starts).v[row]) >= int(t)) {
            [[unroll]] for (uint n = 0u; n < HELD; n++)
                held[n] = 0.0;
        }
        precise vec2 own = vec2(0.0);
        [[unroll]] for (uint n = 0u; n < HELD; n++)
            own += held[n] * vec2(key[lane * HELD + n], query[lane * HELD + n]);
        dots[i] = own;
        barrier();
        own = vec2(0.0);
        [[unroll]] for (uint n = 0u; n < LANES; n++)
            own += dots[n * COLUMNS + i % COLUMNS];
        float decay = tsr_exp(tsr_floats(tsr_at_mul(p.g, row, p.g_stride * 4u)).v[head]);
        float beta = tsr_floats(tsr_at_mul(p.beta, row, p.beta_stride * 4u)).v[head];
        own *= decay * vec2(of_k, of_q);
        float value = owner ? tsr_load_float(tsr_at_mul(p.v, row, p.v_stride * tsr_dtype_bytes(V_DTYPE)), head * VALUE_DIM + column, V_DTYPE)
                            : 0.0;
        float delta = beta * (value - own.x);
        if (owner && lane == 0u)
            tsr_store_float(tsr_at_mul(p.y, row, p.y_stride * tsr_dtype_bytes(Y_DTYPE)), head * VALUE_DIM + column, Y_DTYPE,
                            own.y + sums.z * of_q * of_k * delta);
        [[unroll]] for (uint n = 0u; n < HELD; n++)
            held[n] = held[n] * decay + key[lane * HELD + n] * of_k * delta;
        if (each && owner) {
            uint slot = tsr_slot(true, p.write_slots, row, p.slots);
            uvec2 state = tsr_at_mul(p.new_state, slot * HEADS + head, KEY_DIM * VALUE_DIM * 4u);
            if (slot != TSR_NO_SLOT)
                [[unroll]] for (uint n = 0u; n < HELD; n++)
                    tsr_floats(state).v[(lane * HELD + n) * VALUE_DIM + column] = held[n];
        }
        barrier();
    }
    for (uint t = length; t < p.tokens; t++)
        if (owner && lane == 0u)
            tsr_store_float(tsr_at_mul(p.y, b * p.tokens + t, p.y_stride * tsr_dtype_bytes(Y_DTYPE)), head * VALUE_DIM + column, Y_DTYPE, 0.0);
    if (each)
        return;
    uint new_slot = tsr_slot(TSR_WRITES_SLOTS, p.write_slots, b, p.slots);
    if ((p.new_state.x | p.new_state.y) == 0u || !owner || (TSR_WRITES_SLOTS && new_slot == TSR_NO_SLOT))
        return;
    uvec2 new_state = tsr_at_mul(p.new_state, new_slot * HEADS + head, KEY_DIM * VALUE_DIM * 4u);
    [[unroll]] for (uint n = 0u; n < HELD; n++)
        tsr_floats(new_state).v[(lane * HELD + n) * VALUE_DIM + column] = held[n];
}
