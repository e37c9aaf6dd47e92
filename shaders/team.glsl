// Teams: TEAM neighbouring invocations that work on one row and share sums and maxima, always combined in the same order.
// The includer declares WORKGROUP and TEAM (1, or a power of two from 8 on) and calls these from uniform control flow.
#ifndef TSR_TEAM_GLSL
#define TSR_TEAM_GLSL

shared float team_values[WORKGROUP];

uint team_member()
{
    return gl_LocalInvocationID.x % TEAM;
}

// The row this invocation works on; may be past the last one.
uint team_row()
{
    return tsr_flat_group() * (WORKGROUP / TEAM) + gl_LocalInvocationID.x / TEAM;
}

float team_sum(vec4 mine)
{
    float value = (mine.x + mine.z) + (mine.y + mine.w);
    if (TEAM == 1u)
        return value;
    uint self = gl_LocalInvocationID.x;
    team_values[self] = value;
    [[unroll]] for (uint other = TEAM / 2u; other > 0u; other /= 2u) {
        barrier();
        if (team_member() < other)
            team_values[self] += team_values[self + other];
    }
    barrier();
    value = team_values[self - team_member()];
    barrier(); // before the next use of team_values
    return value;
}

// NaNs may get lost.
float team_max(vec4 mine)
{
    float value = max(max(mine.x, mine.z), max(mine.y, mine.w));
    if (TEAM == 1u)
        return value;
    uint self = gl_LocalInvocationID.x;
    team_values[self] = value;
    [[unroll]] for (uint other = TEAM / 2u; other > 0u; other /= 2u) {
        barrier();
        if (team_member() < other)
            team_values[self] = max(team_values[self], team_values[self + other]);
    }
    barrier();
    value = team_values[self - team_member()];
    barrier();
    return value;
}

#endif
