// Teams: TEAM neighbouring invocations that work on one row and share a sum and a maximum, combined in one fixed order.
// The includer declares WORKGROUP and TEAM: 1, 8, or a multiple of 8 that is the whole workgroup. Barriers are few, because on
// CPU drivers each costs a switch between the workgroup's threads.
#ifndef TSR_TEAM_GLSL
#define TSR_TEAM_GLSL

// Of two slots, so that a call need not wait for the readers of the one before.
shared float team_parts[2 * WORKGROUP];
shared float team_eighths[2 * 8];

uint team_member()
{
    return gl_LocalInvocationID.x % TEAM;
}

// The row this invocation works on; may be past the last one.
uint team_row()
{
    return tsr_flat_group() * (WORKGROUP / TEAM) + gl_LocalInvocationID.x / TEAM;
}

// max() may lose a NaN.
float team_pair(float a, float b, bool largest)
{
    return largest ? max(a, b) : a + b;
}

// `largest` and `slot` are constants; slots take turns. From uniform control flow.
float team_combine(vec4 mine, bool largest, uint slot)
{
    float value = team_pair(team_pair(mine.x, mine.z, largest),
                            team_pair(mine.y, mine.w, largest), largest);
    if (TEAM == 1u)
        return value;
    uint team = slot * WORKGROUP + gl_LocalInvocationID.x - team_member();
    team_parts[team + team_member()] = value;
    barrier();
    float eighths[8];
    if (TEAM > 8u) {
        if (team_member() < 8u) {
            for (uint other = team_member() + 8u; other < TEAM; other += 8u)
                value = team_pair(value, team_parts[team + other], largest);
            team_eighths[8u * slot + team_member()] = value;
        }
        barrier();
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            eighths[i] = team_eighths[8u * slot + i];
    } else {
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            eighths[i] = team_parts[team + i];
    }
    [[unroll]] for (uint i = 0u; i < 4u; i++)
        eighths[i] = team_pair(eighths[i], eighths[i + 4u], largest);
    [[unroll]] for (uint i = 0u; i < 2u; i++)
        eighths[i] = team_pair(eighths[i], eighths[i + 2u], largest);
    return team_pair(eighths[0], eighths[1], largest);
}

float team_sum(vec4 mine)
{
    return team_combine(mine, false, 0u);
}

float team_max(vec4 mine)
{
    return team_combine(mine, true, 1u);
}

// For several sums: slots 0 and 1 by turns.
float team_sum_in(uint slot, vec4 mine)
{
    return team_combine(mine, false, slot);
}

#endif
