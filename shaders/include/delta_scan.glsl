// What the kernels share that go from chunk to chunk: a workgroup has 4 · QUADS columns of a head's state, or of its gradient, in shared
// memory. Its invocations are LINES × QUADS; line l computes rows l, l + LINES, … of four columns.
layout(constant_id = 6) const uint WORKGROUP_SIZE = 64; // as constant 0
layout(constant_id = 7) const uint QUADS = 4;

const uint LINES = WORKGROUP_SIZE / QUADS;
const uint OWN_TOKENS = CHUNK / LINES;
const uint OWN_KEYS = (KEY_DIM + LINES - 1u) / LINES;

shared vec4 state[KEY_DIM * QUADS];

uint scan_quad()
{
    return gl_LocalInvocationID.x % QUADS;
}

uint scan_line()
{
    return gl_LocalInvocationID.x / QUADS;
}

// Adds Σ_i row[i] · state[i] to sums[n], where row is row `first + n · LINES` of an array with rows of KEY_DIM.
void scan_add_state(uvec2 work, uint place, uint first, inout vec4 sums[OWN_TOKENS])
{
    for (uint i = 0u; i < KEY_DIM / 4u; i++) {
        vec4 part[4];
        [[unroll]] for (uint m = 0u; m < 4u; m++)
            part[m] = state[(4u * i + m) * QUADS + scan_quad()];
        [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++) {
            vec4 row = tsr_floats4(delta_row(work, place, first + n * LINES, KEY_DIM)).v[i];
            sums[n] += row.x * part[0] + row.y * part[1] + row.z * part[2] + row.w * part[3];
        }
    }
}
